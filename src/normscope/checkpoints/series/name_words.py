"""The words and shapes by which the numbers in a checkpoint's name are told apart, as data.

Each entry is a regular expression on the name in lower case. A number that one of them has
taken is not looked at again, so the order in which `names` tries them matters.
"""

from __future__ import annotations

import re

NUMBER = r"([0-9]{1,18}(?:\.[0-9]{1,9})?)(e[0-9]{1,2}|[kmbt])?"
"""A count, with a unit letter or a power of ten: 1000, 1.5m, 143k, 1e5."""
_START = r"(?<![a-z0-9])"
_END = r"(?![a-z0-9])"
_NO_LETTER = r"(?<![a-z])(?<![0-9]\.)"
_SEP = r"[-_=.: ]{0,2}(?<![_=.: ]-)"  # step_-1 is not step 1
_TIME = r"(?:[01][0-9]|2[0-3])[-_:.h]?[0-5][0-9][-_:.m]?[0-5][0-9]s?"
_SHORT_TIME = r"(?:[01][0-9]|2[0-3])[-:h][0-5][0-9]"
_CLOCK = rf"(?:{_TIME}|{_SHORT_TIME})(?:\+[0-9]{{2}})?"
_NO_DATE = r"(?![0-9]{4}[-_.][0-9]{2}[-_.])"
_MONTH, _DAY, _YEAR = r"(?:0[1-9]|1[0-2])", r"(?:0[1-9]|[12][0-9]|3[01])", r"(?:19|20)[0-9]{2}"


def _any(*patterns: str) -> tuple[re.Pattern[str], ...]:
    return tuple(re.compile(pattern) for pattern in patterns)


# -- numbers that say nothing about training --------------------------------------------

HASHES = _any(
    rf"{_START}[0-9a-f]{{8}}(?:-[0-9a-f]{{4}}){{3}}-[0-9a-f]{{12}}{_END}",  # a UUID
    rf"(?<=model_final_)[0-9a-f]{{6}}{_END}",  # detectron2 adds the start of the file's hash
    rf"{_START}(?![0-9]+[a-f]{_END})(?![a-f]{{1,2}}[0-9]+{_END})(?=[a-f]*[0-9])(?=[0-9]*[a-f])[0-9a-f]{{6,40}}{_END}",
)
DATES = _any(
    rf"(?<![0-9]){_YEAR}([-_.]){_MONTH}\1{_DAY}(?:[-_t +]+{_NO_DATE}{_CLOCK})?(?![0-9])",
    rf"(?<![0-9]){_DAY}([-_.]){_MONTH}\1{_YEAR}(?![0-9])",
    rf"{_START}(?:jan|feb|mar|apr|may|jun|jul|aug|sep|oct|nov|dec)[-_]?[0-9]{{1,2}}[-_]{_TIME}(?![0-9])",
)
BARE_DATES = _any(
    rf"(?<![0-9])20[0-4][0-9]{_MONTH}{_DAY}(?:[-_t]?{_TIME})?(?![0-9])",
    r"(?<![0-9])1[4-9][0-9]{8}(?:[0-9]{3})?(?![0-9])",  # seconds or milliseconds since 1970
)
"""Dates without separators; a word such as "step" before one makes it a count after all."""

QUANTISATION = _any(
    rf"{_START}(?:i?q[1-8](?:_[0-9]|_k|_[sml]|_xx?s|_xs|_nl)*|tq[12]_0|w[0-9]+a[0-9]+){_END}",
    rf"{_START}(?:fp|bf|f|int|uint|float|nf|bfloat|mxfp){_SEP}(?:64|32|16|8|4)(?:_?e[0-9]m[0-9][a-z]*)?{_END}",
    rf"{_START}[1-9][0-9]?[-_]?bits?{_END}",
    rf"{_START}e[0-9]m[0-9](?:fn|fnuz)?{_END}",
)
SIZES = _any(
    rf"(?<![a-z])vit[-_]?[a-z]+[-_]?(?P<number>8|14|16|32){_END}",  # ViT-B-32
    rf"(?<![a-z])(?:resnet|resnext|rn?)[-_]?(?P<number>18|20|32|34|44|50|56|101|110|152|200){_END}",  # depth
    rf"(?<![a-z])(?:vgg|densenet)[-_]?(?P<number>11|13|16|19|121|161|169|201){_END}",
    rf"(?:patch|window)[0-9]{{1,2}}[-_](?P<number>[1-5][0-9]{{2}}(?:[-_](?:1|21|22)k)?){_END}",  # pixels
    rf"{_START}[0-9]{{1,4}}x[0-9]{{1,5}}[mb]?{_END}",  # 8x7b; a width and a depth
    rf"{_START}[0-9]{{1,4}}b[0-9]{{1,2}}{_END}",
    r"(?<![0-9.])[0-9]{1,5}(?:\.[0-9]{1,3})?[mb](?![a-z0-9])",
    r"(?<=[a-z])(?<![^a-z][a-z])[0-9]{1,5}k(?![a-z0-9])",
)
VERSION_PART = re.compile(r"^[-_][0-9](?![0-9a-z])")
"""v1-4 may be a version, or number 4 of version 1."""
VERSIONS = _any(
    rf"(?<![a-z])(?:v|ver|version|rev|release){_SEP}[0-9]{{1,4}}(?:\.[0-9]{{1,4}}){{0,3}}(?![0-9])",
    r"(?<![0-9.])[0-9]{1,4}(?:\.[0-9]{1,4}){2,}(?![0-9.])",
)
SETTINGS = _any(
    rf"(?<![a-z])n(?:um)?[-_]?epochs{_SEP}[0-9]+{_END}",
    r"(?<![a-z])(?:warm_?up|max|total|accum[a-z]*|grad_acc[a-z]*|eval|save|log(?:ging)?|decay|every"
    r"|diffusion|denois[a-z]*|sampling|inference|inner|unroll)"
    rf"[-_]?(?:n[-_])?(?:steps?|iters?|epochs?|updates?)?{_SEP}{NUMBER}{_END}",
    r"(?<![a-z])(?:lr|learning_?rate|[gm]?bsz?|batch_?size|wd|weight_?decay|drop(?:out)?|beta[12]?|gamma|alpha|tau|temp"
    r"|lambda|eps|momentum|dim|d_?model|n?_?embd?|emb|hidden|width|depth|n?_?layers?|n?_?heads?|ffn?|mlp|ctx|context"
    r"|seq(?:_?len)?|len|max_?len|length|block(?:_?size)?|vocab|patch|img|res|size|px|fold|cv|split|trial|exp|job|run"
    r"|id|task|try|attempt|seeds?|worker|workers|gpus?|nodes?|device|devices|port|top|topk|lora_?rank|lora_?r|lora_?alpha"
    r"|ratio|scale|noise|clip|tmax|avg|ave|average|swa|soup|heads?|experts?|of)"
    rf"{_SEP}[0-9]+(?:\.[0-9]+)?(?:e-?[0-9]+)?[km]?(?:best)?{_END}",
    rf"{_START}(?:d|l|h|r|a|k|n|x|p|t|w|m)=?[0-9]{{1,5}}{_END}",
    rf"{_START}last[0-9]{{1,3}}{_END}",
    rf"{_START}[lha]-[0-9]{{1,4}}{_END}",
)
SCIENTIFIC = _any(rf"{_START}[0-9]+(?:\.[0-9]+)?e-?[0-9]{{1,2}}{_END}")
METRICS = _any(
    r"(?<![a-z])(?:(?:val|valid|test|train|eval|dev)[-_./]?)?"
    r"(?:loss|acc|accuracy|ppl|perplexity|bleu|rouge[12l]?|wer|cer|f1|auc|map(?:50)?|m?iou|dice|psnr|ssim|fid|mse|mae|rmse"
    r"|bpb|bpc|bits|nll|elbo|rewards?|rew|returns?|scores?|err|error|top[15]|recall|precision|kl|metric|r2|mrr|ndcg)(?:_(?:epoch|step)(?==))?"
    rf"{_SEP}-?[0-9]+(?:\.[0-9]+)?(?:e-?[0-9]+)?%?{_END}",
    rf"{_START}(?:top[15]|f1|r2|map50){_END}",
    rf"(?<![a-z])(?:consumed|seen)?_?(?:samples|examples|images){_SEP}[0-9]+(?:\.0+)?[kmb]?{_END}",
    rf"(?<![a-z])(?:time|hours?|wct|lr|val|eval|value){_SEP}-?[0-9]+\.[0-9]+{_END}",
)

# -- the parts of one checkpoint ---------------------------------------------------------

RANKS = _any(
    r"(?<![a-z])(?:layer_?[0-9]+_)?expert_(?P<rank>[0-9]{1,5})(?=_mp_rank)",
    rf"(?<![a-z])world[-_]?size{_SEP}(?P<count>[0-9]{{1,5}})[-_]rank{_SEP}(?P<rank>[0-9]{{1,5}})(?![0-9])",
    rf"(?<!lora)(?<!lora[-_])(?<![a-z])(?:(?:tp|pp|dp|ep|cp|mp|zero|model|tensor|pipeline|global|local|node|expert)[-_]?)*"
    rf"rank{_SEP}(?P<rank>[0-9]{{1,5}}(?:[-_][0-9]{{2,5}}(?![0-9]))*)(?:[-_]?of[-_]?(?P<count>[0-9]{{1,5}}))?(?![0-9])",
    r"(?<![a-z])consolidated[._](?P<rank>[0-9]{2})(?![0-9])",
    r"(?<![a-z])layer_(?P<rank>[0-9]{2,3}-model_[0-9]{2})(?![0-9])",
    rf"(?<![a-z])(?:model[-_])?(?:shard|part|partition|fsdp){_SEP}(?P<rank>[0-9]{{1,5}})(?:[-_]?of[-_]?(?P<count>[0-9]{{1,5}}))?(?![0-9])",
    r"(?<![a-z])(?:random_states|rng_state)_(?P<rank>[0-9]{1,5})(?![0-9])",
    r"(?<![a-z0-9])(?<!step[-_=])(?<!steps[-_=])(?<!iter[-_=])(?<!epoch[-_=])(?<!ep[-_=])"
    rf"(?P<rank>[0-9]{{1,5}})[-_]?of[-_]?(?P<count>[0-9]{{1,5}}){_END}",
    r"^__(?P<rank>[0-9]+_[0-9]+)$",
    rf"{_START}(?:tp|pp|dp|mp)[-_]?(?P<rank>[0-9]{{1,4}}){_END}",
)

# -- numbers that count training -----------------------------------------------------------

STAGE = re.compile(rf"{_START}((?:stage|phase)[-_]?[0-9]+(?:[-_]ingredient[-_]?[0-9]+)?)(?![0-9])")
TOKENS = _any(
    rf"(?<![a-z])(?:consumed_?|train_?)?(?:tokens?|toks?){_SEP}{NUMBER}{_END}",
    rf"{_START}{NUMBER}[-_]?(?:tokens?|toks?){_END}",
    rf"{_START}([0-9]{{1,6}}(?:\.[0-9]{{1,4}})?)([bt])t{_END}",
    rf"{_START}train_([0-9]{{5}})(b){_END}",
)
TOKENS_AFTER_STEP = re.compile(rf"^[-_]([0-9]{{1,6}}(?:\.[0-9]{{1,4}})?)([bt]){_END}")
_STEP = r"(?:(?:global|train(?:ing)?|env|time|num)[-_]?)?"
_STEP_WORD = rf"{_STEP}(?:steps?|iterations?|iters?|itr|its?|updates?|upd|ba)"
_EPOCH_WORD = r"(?:epochs?|ep)"
COUNTER_WORDS = ("episode", "round", "generation", "game", "kimg", "cycle", "frame")
"""What names count besides steps and epochs; the unit of such a series."""
_OTHER_WORD = f"(?:{'|'.join(COUNTER_WORDS)})s?"
STEP_FIRST = re.compile(rf"{_NO_LETTER}{_STEP_WORD}{_SEP}{NUMBER}{_END}")
EPOCH_FIRST = re.compile(rf"{_NO_LETTER}{_EPOCH_WORD}{_SEP}{NUMBER}{_END}")
OTHER_FIRST = re.compile(rf"(?<![a-z]){_OTHER_WORD}{_SEP}{NUMBER}{_END}")
_BEFORE = r"(?:(?<![a-z0-9.])|(?<=model)|(?<=ckpt)|(?<=checkpoint))"
STEP_LAST = re.compile(rf"{_BEFORE}{NUMBER}[-_ ]?{_STEP_WORD}(?![a-z0-9])")
EPOCH_LAST = re.compile(rf"{_BEFORE}{NUMBER}[-_ ]?(?:epochs?|eps?)(?![a-z0-9])")
OTHER_LAST = re.compile(rf"{_BEFORE}{NUMBER}[-_ ]?{_OTHER_WORD}(?![a-z0-9])")
BATCH = re.compile(rf"(?<![a-z])batch(?:es)?{_SEP}{NUMBER}{_END}")
EPOCH_AND_STEP = re.compile(rf"{_START}e(?:p|poch)?[-_=]?([0-9]{{1,6}})[-_]?(?:s|it?){NUMBER}{_END}")
EPOCH_LETTER = re.compile(rf"{_START}e=?([0-9]{{1,6}}){_END}")
EPOCH_THEN_UPDATES = re.compile(rf"{_START}checkpoint_([0-9]{{1,6}})_([0-9]{{1,18}})(?!_?[0-9])")
FILE_NUMBER = re.compile(
    rf"(?<![a-z])(?:check_?point|chkpt|ckpt|chk|cp|snapshot)s?{_SEP}([0-9]{{1,18}}(?:\.[0-9]{{1,3}}(?=[kmb]))?)([km])?"
    rf"{_END}(?!_[0-9]+(?:[-_.]|$))"
)
THOUSANDS = re.compile(r"^[_,][0-9]{3}(?![0-9a-z])")
"""step_100_000 may be step 100,000, or step 100 and something else."""
COUNTED_FILE = frozenset(
    (
        *("model", "models", "net", "network", "save", "saved", "weights", "weight", "params", "state"),
        *("agent", "policy", "iter", "ckpt", "opt", "checkpoint", "g", "d"),
    )
)
"""Words to which the number of a file may be glued, or which may follow it: model100000, 10_net_G."""

# -- which checkpoint of a run it is ---------------------------------------------------------

_WORD = r"(?:(?<![a-z])|(?<=step)|(?<=epoch)|(?<=model)|(?<=ckpt)|(?<=checkpoint))"
NEVER_A_MODEL = re.compile(r"(?<![a-z])(?:replay[-_]?buffer|vec[-_]?normalize)(?![a-z])")
"""What trainers of agents save for each checkpoint, under names with "model" in them."""
KINDS: tuple[tuple[str, re.Pattern[str]], ...] = (
    ("state", NEVER_A_MODEL),
    ("state", re.compile(
        rf"{_START}(?:optim(?:izer)?s?(?:_states?)?|opt(?=[0-9])|(?:lr_)?scheduler|scaler|rng|random_states?"
        r"|training[-_](?:args|state)|(?:recipe|extra|trainer|dataloader)[-_]state|state_[0-9]+_[0-9]+$|stats)(?![a-z])|optim_states$"
        r"|distrib_optim")),
    ("ema", re.compile(r"(?<![a-z])(?:(?:model)?ema(?:only|_?model)?)(?![a-z])")),
    ("average", re.compile(r"(?<![a-z])(?:avg|ave|averaged?|swa|soup(?:ed)?|polyak)(?![a-z])")),
    ("backup", re.compile(
        r"(?<![a-z])(?:backup|bak|tmp|temp|old|copy|recovery|autosave|interrupt(?:ed)?|crash(?:ed)?)(?![a-z])")),
    ("best", re.compile(rf"{_WORD}best(?:_?model)?(?![a-z])")),
    ("init", re.compile(r"(?<![a-z])(?:init|initial|untrained)(?![a-z])")),
    ("final", re.compile(rf"{_WORD}(?:final|last|latest)(?:_?model)?(?![a-z])")),
)  # fmt: skip
"""Words that say which checkpoint it is; the first that fits counts."""

_CONTENT = "(?:checkpoints?|ckpts?|models?|weights)?"
FOLDER_OF_AVERAGES = re.compile(rf"{_CONTENT}[-_]?(?:ema|avg|averaged?|swa)[-_]?{_CONTENT}")
"""ema/step_100.pt is no checkpoint of the run around it."""
