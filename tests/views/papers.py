"""Papers to make pages of: one with neighbours, a reading list, many works, hostile text."""

from __future__ import annotations

import random

from normscope.literature.works import BY_CENTRALITY, ClaimLine, Paper, Term, Work

WORDS = [
    "attention",
    "transformer",
    "saturation",
    "gradient",
    "norm",
    "growth",
    "implicit",
    "bias",
    "formal",
    "language",
    "automata",
]


def work(name, title, authors=("Ada Lovelace",), year=2020, **more):
    links = (("arXiv", f"https://arxiv.org/abs/{name}"), ("DOI", f"https://doi.org/10.1/{name}"))
    return Work(
        f"arxiv:{name}", title, tuple(authors), year, **({"links": links, "sources": ("arxiv",)} | more)
    )


def small_paper(**changes):
    """A paper with twelve references, nine citing works, one that is both, and three further away."""
    centre = work(
        "2010.1", "Norm growth of transformers", ("William Merrill", "Noah A. Smith"), 2021,
        venue="EMNLP 2021", published="2020-10", updated="2023-03-09", categories=("cs.LG", "cs.CL"),
        licence="http://creativecommons.org/licenses/by/4.0/", comment="Appeared at EMNLP 2021.",
        abstract=r"The $\ell_2$ norm grows. It grows as $\sqrt{t}$. Nothing else does.",
    )  # fmt: skip
    references = [
        work(f"r.{i}", f"Reference {i} on automata", (f"Rita Ref{i}",), 1956 + 5 * i) for i in range(12)
    ]
    both = work("b.0", "A work that is both", ("Henry Kučera",), 2021)
    citing = [
        work(f"c.{i}", f"Citing work {i} on saturation", (f"Carl Cite{i}",), 2021 + i % 4) for i in range(9)
    ]
    further = [
        work(f"f.{i}", f"Further work {i}", (f"Fay Far{i}",), None if i == 0 else 2010) for i in range(3)
    ]
    values = {
        "work": centre,
        "terms": (
            Term("inductive bias", 0.31, 2, 120, ("inductive bias", "inductive biases")),
            Term("norm", 0.1, 4, 900, ("norm",)),
        ),
        "summary": (r"The $\ell_2$ norm grows.",),
        "summary_by": BY_CENTRALITY,
        "references": (*references, both),
        "citations": (*citing, both),
        "further": tuple(further),
        "edges": tuple((far.id, references[0].id) for far in further),
        "merged": ("“Citing work 0” was found twice, as of 2021 and 2022.",),
        "notes": ("Citations as of 2025-01-01, from the cache.",),
        "claims": (
            ClaimLine("growth", "The norm grows.", "confirmed", "normscope replicate", "exponent 0.49"),
            ClaimLine("align", "Updates align.", "artefact", "normscope replicate align"),
            ClaimLine("open", "Models saturate.", None, "normscope replicate open"),
        ),
    }  # fmt: skip
    return Paper(**(values | changes))


def reading_list(count=20, edges=()):
    works = tuple(work(f"l.{i}", f"Listed {i}", (f"Lea List{i}",), 2000 + i) for i in range(count))
    pairs = tuple((works[a].id, works[b].id) for a, b in edges)
    return Paper(None, (), (), BY_CENTRALITY, (), (), works, pairs)


def many_works(count, seed=1):
    """A paper with 60 references, 400 citing works and many further away, at random."""
    chance = random.Random(seed)
    works = [
        work(
            f"m.{i}",
            " ".join(chance.choices(WORDS, k=chance.randint(4, 12))).capitalize(),
            [
                f"{chance.choice('ABCDE')}. {chance.choice(WORDS).capitalize()}son"
                for _ in range(chance.randint(1, 6))
            ],
            None if chance.random() < 0.02 else max(1956, 2025 - int(chance.expovariate(1 / 7))),
            venue=chance.choice([None, "NeurIPS", "ICLR"]),
        )
        for i in range(count)
    ]
    references, citing, further = works[1:61], works[61 : min(461, count)], works[461:]
    near = [*references, *citing]
    edges = {
        (far.id, chance.choice(near).id) for far in further for _ in range(1 + int(chance.expovariate(0.8)))
    }
    edges |= {(chance.choice(near).id, chance.choice(near).id) for _ in range(count // 2)}
    groups = (tuple(references), tuple(citing), tuple(further), tuple(sorted(edges)))
    return Paper(works[0], (), (), BY_CENTRALITY, *groups)


HOSTILE = (
    "<img src=x onerror=\"window.hit='img'\">",
    "</script><script>window.hit='script'</script>",
    "</textarea></title></style><svg onload=\"window.hit='svg'\">",
    "'\"><b>bold</b> ]]> <!-- --> {{ 7*7 }} ${window.hit='template'}",
    "\u202egpj.exe reversed\u202c \u2066isolated\u2069 \x00\x07\x1b[31m control \ud800 surrogate",
    "\u2028line\u2029paragraph\u0085next",
    "A title without end " + "x" * 10_000,
    "עברית: כותרת מימין לשמאל",
    "",
)


def hostile_paper():
    """Markup, control characters, endless titles and links that would run, in every field."""
    bad = (
        ("click", "javascript:window.hit='link'"),
        ("data", "data:text/html,<script>1</script>"),
        ("tab", "java\tscript:alert(1)"),
        ("user", "https://arxiv.org@evil.example/"),
        ("<b>label</b>", 'https://example.org/"onmouseover="window.hit=1'),
        ("<i>good</i>", "https://example.org/a?b=1&c=2"),
    )
    works = [
        work(f"h.{i}", text, (text, "B"), 2000 + i, venue=text, links=bad) for i, text in enumerate(HOSTILE)
    ]
    evil = HOSTILE[0] + HOSTILE[1]
    more = {
        "abstract": evil,
        "comment": evil,
        "licence": "javascript:window.hit='licence'",
        "categories": (evil,),
    }
    centre = work("h.c", HOSTILE[1], (HOSTILE[0],), 2001, venue=HOSTILE[2], links=bad, published=evil, **more)
    return Paper(
        centre, (Term(evil, 0.5, 1, 1, (evil,)),), (evil,), evil, tuple(works[:4]), tuple(works[4:]), (),
        ((centre.id, works[0].id), (evil, works[0].id)), (evil,), (evil,),
        (ClaimLine(evil, evil, evil, evil, evil),),
    )  # fmt: skip
