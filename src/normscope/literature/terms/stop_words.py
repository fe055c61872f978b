"""Words and phrases that say nothing about a subject: function words, and the prose that all papers share."""

from __future__ import annotations

from normscope.literature.terms.word_sets import word_set

FUNCTION_WORDS = word_set(
    """
    a about above across after again against all almost alone along already also although always am among
    amongst an and another any anyone anything are aren't around as at away be became because become
    becomes been before behind being below beneath beside besides between beyond both but by can can't
    cannot could couldn't did didn't do does doesn't doing don't done down during each eg either else
    enough et etc even ever every everyone everything except few fewer first five for four from further
    furthermore had has hasn't have haven't having he hence her here hers herself him himself his how
    however i ie if in indeed inside instead into is isn't it its itself just last latter least less let
    like many may maybe me might mine more moreover most much must my myself namely near need neither
    never nevertheless next no nobody none nonetheless nor not nothing now of off often on once one ones
    only onto or other others otherwise our ours ourselves out outside over own per perhaps please quite
    rather same second seem seemed seems several shall she should shouldn't since so some somehow someone
    something sometimes soon still such than that that's the their theirs them themselves then there
    thereby therefore these they third this those though three through throughout thus to together too
    toward towards two under unless unlike until up upon us versus very via vs was wasn't we well were
    weren't what whatever when whenever where whereas whereby wherein whether which while who whoever
    whole whom whose why will with within without won't would wouldn't yet you your yours yourself al ten
    six seven eight nine eleven twelve dozen hundred hundreds thousand thousands million millions billion
    billions percent percentage cf ca pp fig eq
    """
)

# Words of argument and evaluation, not of a subject. Nouns that name objects of study are not in this list.
PROSE_WORDS = word_set(
    """
    abstract academic accept accepted accessible accompany according account accounts achieve achieved
    achievement achieves achieving acknowledge actual add added adding addition additional address
    addressed addresses addressing adopt adopted adopting advance advanced advancement advances advantage
    advantages affect affected affects aforementioned agree aid aim aimed aiming aims allow allowed
    allowing allows alternative alternatives amenable amount amounts analyse analysed analyses analysing
    analyze analyzed analyzes analyzing answer apparent appealing appear appeared appears applicable
    applied applies apply applying appropriate area areas argue argued argues arise arises article ask
    aspect aspects assess assessed assessing assume assumed assumes attain attains attempt attempts author
    authors available avoid avoids aware based basic basis begin begins behave belief believe believed
    belong benefit benefits best better big bring bringing brings broad broader build building builds
    built call called cast carefully carried carry cause caused causes causing central certain challenge
    challenges challenging changed changing characteristic characteristics characterise characterization
    characterize characterized characterizes characterizing choose chosen cite claim claims clear close
    closely closer collect collected come comes coming common compare compared compares comparing
    comparison comparisons compelling complete comprehensive comprise comprises comprising compute
    computed computes computing concern concerned concerns conclude conclusion conclusions conduct
    conducted confirm confirmed confirms consequence consequences consequently consider considerable
    consideration considered considering considers consist consistent consists construct constructed
    constructing contain contained containing contains continue contrast contribute contributes
    contribution contributions convincing core correspond corresponding corresponds cover covers create
    created creates creating critical crucial current currently date deal dealing decade decades decide
    deem deep-dive define defined defines defining degree demand demonstrate demonstrated demonstrates
    demonstrating depend dependent depending depends derive derived derives describe described describes
    describing designed designing desirable despite detail detailed details determine determined
    determines determining develop developed developing development developments develops devise
    difference differences different differs difficult difficulty direct direction directions discover
    discovered discuss discussed discusses discussion distinct diverse doubt draw drawing drawn drive
    driven drives due earlier early ease easier easy effect effective effectiveness effects effort efforts
    elucidate emerge emerged emerges emerging emphasis emphasize empirical employ employed employing
    employs enable enabled enables enabling encourage end enhance enhanced enhances enhancing ensure
    ensures ensuring entail entire equal especially essential establish established establishes
    establishing estimate evaluate evaluated evaluates evaluating evidence evident exact examine examined
    examines examining example examples exceed exceeds excellent excess exhibit exhibited exhibits exist
    existed existence existing exists expand expect expected expensive experience experimental explain
    explained explaining explains explanation exploit exploited exploits explore explored explores
    exploring expose extend extended extending extends extensive reach face faces facilitate facilitates
    fact fail fails failure fair fairly fall falls familiar far fashion feasible figure find finding
    findings finds fit fits five-fold focus focused focuses focusing follow followed following follows
    former formulate forward found four-fold free frequent fresh fulfil full fully fundamental furnish
    future gain gained gains gap gaps gather general generally get give given gives giving go goal goals
    goes going good great greater greatest ground growing guide handle handles happen happens hard harder
    heavy held help helped helpful helping helps high higher highest highlight highlighted highlighting
    highlights highly hinder hold holds hope huge hypothesise hypothesize idea ideal ideas identified
    identifies identify identifying illustrate illustrated illustrates impact impacts implement
    implementation implemented implements implication implications imply implies important importance
    impose impossible impressive improve improved improvement improvements improves improving include
    included includes including incorporate incorporates incorporating increase increased increases
    increasing incur indicate indicated indicates indicating individual influence inform insight insights
    inspire inspired instance instances integrate intend interest interested interesting interplay
    intricate introduce introduced introduces introducing introduction intuition investigate investigated
    investigates investigating investigation involve involved involves involving issue issues join keep
    keeping keeps kind kinds know knowing known lack lacking lacks large larger largest late later latest
    lead leading leads learn learned learning-based leave leaves led left leverage leveraged leverages
    leveraging lie lies likely limitation limitations limited literature little live long longer look
    looking looks low lower lowest made main mainly maintain maintaining maintains major majority make
    makes making manage manner mark match matched matches matching matter mean meaning meaningful means
    measured measuring meet merely merit met methodology mere minor modern modest moderate motivate
    motivated motivates motivation move moves moving multiple name named nature necessary needed needs new
    newly nice normal notable note noted notion novel novelty numerous objective objectives observation
    observations observe observed observes observing obtain obtained obtaining obtains obvious occur
    occurred occurring occurs offer offered offering offers old ongoing operate opportunities opportunity
    option ordinary organise organize original outcome outcomes outline outlined outperform outperformed
    outperforming outperforms overall overcome overcomes overview paper papers part particular parts past
    people perform performed performing performs permit person perspective perspectives phenomenon place
    plausible play played playing plays pose posed poses possess possible possibility possibly potential
    potentials powerful practical practice precise predominant preliminary premise prepare presence
    present presented presenting presents preserve pressing previous primary principal principle
    principled prior probably procedure proceed proceeding produce produced produces producing profound
    progress prominent promise promising promote prompted proper propose proposed proposes proposing prove
    proved proven proves provide provided provides providing proving publicly published purpose purposes
    pursue put putting quantify quick raise raised raises range ranges ranging rapid rare rarely reach
    reached reaches read reader readily ready real-world realise realize reason reasonable reasons recall
    receive received recent recently recognise recognized reduce reduced reduces reducing reduction refer
    referred refers reflect reflects regard regarding regardless relate related relates relationship
    relationships relative relevant reliable relied relies rely relying remain remained remaining remains
    remarkable reported reporting represent represented representing represents request require required
    requirement requirements requires requiring research researcher researchers resemble resolve respect
    respective restrict restricted result resulted resulting results retain return reveal revealed
    revealing reveals reviewed rich right rise rival role roles roughly routine running salient
    satisfactory satisfy say scenario scenarios scheme scope seek seeking seeks see seen select selected
    serious serve served serves serving setup severe shared sharp shed sheds short show showed showing
    shown shows sight significance significant similar similarity simple simpler simplest single situation
    situations slight slow small smaller smallest so-called solely solve solved solves solving sought
    sound specific specifically spite started starting state-of-the-art stated statistically
    straightforward strength strengths strict striking strong stronger strongly struggle struggles studied
    studying subsequent substantial succeed success successful suffer suffers sufficient suggest suggested
    suggesting suggests suit suitable summarize superior supported supporting suppose surprise surprising
    tackle tackled tackles take taken takes taking talk tell tend tendency tends term termed terms tested
    testing text-based thank thing things think thorough thought throw tie tight today topic topics total
    traditional trait treat treated treats tries true try trying turn twofold typical ubiquitous ultimate
    uncover uncovers underlie underlying underpin underscore underscores understand understanding
    understands understood undertake unexplored unified unique unknown unprecedented unresolved use used
    useful uses using usual utilise utilised utilize utilized utilizes utilizing valid validate validated
    validates valuable variant variants variety various vary varying vast verified verify version viewed
    want way ways weak week whole wide widely wider widespread wish work worked working works worse worst
    worth worthwhile wrong yield yielded yielding yields young url https http www com org arxiv preprint
    textbf textit emph github
    """
)

# Too common to be terms, but parts of terms: transcription factor, time series, natural language.
PARTS_OF_PAIRS = word_set(
    """
    application approach case change choice code concept context description evaluation experiment factor
    field final force form framework group half hand item key length lens letter light limit line link
    list measure method natural number open order point position problem process proof public question
    real record relation report rest review room root run score section set setting shape share shift side
    size solution sort source special stage stand standard start state statement status step strategy
    study subject sum support survey target technique test text time treatment trend type value view word
    world year
    """
)

# Figures of speech, as pairs of singular words; most others consist of stop words and never become pairs.
STOP_PHRASES = frozenset(
    phrase.replace("_", " ")
    for phrase in word_set(
        """
    case_study close_look common_practice considerable_attention first_step fundamental_question
    further_light future_direction growing_body increasing_attention large_body large_number large_scale
    large_set last_year little_attention much_attention next_generation next_step open_problem open_question
    past_year promising_avenue real_world recent_attention recent_year related_problem research_community
    same_time shed_light small_number small_set small_step special_attention special_case starting_point
    state_art vast_majority wide_range
    """
    )
)

# In -ly, and no adverbs.
NOUNS_IN_LY = word_set(
    "anomaly assembly family homily italy july monopoly poly supply reply butterfly ally belly fly jelly "
    "rally multiply comply"
)


def is_stop_word(word: str) -> bool:
    """Whether a word in lower case is no part of any term: a function word, prose, or an adverb in -ly.

    >>> [word for word in ("the", "propose", "typically", "anomaly", "norm") if not is_stop_word(word)]
    ['anomaly', 'norm']
    """
    if word in FUNCTION_WORDS or word in PROSE_WORDS:
        return True
    return len(word) > 4 and word.endswith("ly") and word not in NOUNS_IN_LY


def is_term_alone(word: str) -> bool:
    """Whether a word, which is no stop word, can be a term without another word: "factor" cannot."""
    return word not in PARTS_OF_PAIRS


def is_stop_phrase(phrase: str) -> bool:
    """Whether a pair of words, in lower case and singular, is a figure of speech."""
    return phrase in STOP_PHRASES
