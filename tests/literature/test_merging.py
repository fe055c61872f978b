"""One work that is found twice is listed once; two works with one title are not."""

import random

import pytest

from normscope.literature.merging import all_ids, merge, plain_title, surname
from normscope.literature.work_making import make_work


def work(title, *ids, source="openalex", **known):
    return make_work(source, title, ids, **({"authors": ["Ada Lovelace"]} | known))


def merged_titles(*works):
    return [each.title for each in merge(works).works]


def test_works_with_a_common_id_are_one_and_gaps_are_filled():
    a = work("Norms", "10.1000/a", year=2020)
    b = work(
        "Norms, again", "10.1000/A", "2010.09697", source="semanticscholar", venue="TACL", abstract="Text."
    )
    (only,) = merge([a, b]).works
    assert (only.title, only.year, only.venue, only.abstract) == ("Norms", 2020, "TACL", "Text.")
    assert only.id == "arxiv:2010.09697" and only.other_ids == ("doi:10.1000/a",)
    assert only.sources == ("openalex", "semanticscholar")
    assert merge([a, b]).said == ("Works that several services know, merged: 1.",)


def test_ids_join_works_across_a_third():
    works = [work("A", "10.1000/a"), work("B", "2010.09697"), work("C", "10.1000/a", "2010.09697")]
    assert merged_titles(*works) == ["A"]


@pytest.mark.parametrize(
    "other", ["Norm growth: in networks", "NORM GROWTH IN NETWORKS.", "Norm  growth in “networks”"]
)
def test_one_title_and_an_author_in_common_are_one_work(other):
    a, b = work("Norm growth in networks", year=2023), work(other, year=2024)
    found = merge([a, b])
    assert len(found.works) == 1 and found.works[0].year == 2023
    assert found.said == ("“Norm growth in networks” was found twice (2023, 2024) and is listed once.",)


def test_one_title_by_other_authors_is_another_work():
    a, b = work("Introduction", authors=["Ada Lovelace"]), work("Introduction", authors=["Bo Diddley"])
    found = merge([a, b])
    assert len(found.works) == 2
    assert [each.id for each in found.works] == ["title:introduction", "title:introduction-2"]
    assert found.said == ()


def test_a_short_title_without_authors_is_not_trusted():
    assert len(merge([work("Introduction", authors=[]), work("Introduction")]).works) == 2
    assert len(merge([work("On norm growth", authors=[]), work("On norm growth")]).works) == 1


def test_two_arxiv_ids_are_two_works_even_through_a_third():
    a, b = work("On norm growth again", "2010.00001"), work("On norm growth again", "2010.00002")
    c = work("On norm growth again", authors=[])
    for order in ([a, b, c], [c, a, b], [a, c, b]):
        assert len(merge(order).works) == 2


def test_names_are_compared_without_accents_and_initials():
    assert surname("Henry Kučera") == surname("Kucera, H.") == "kucera"
    assert (
        len(
            merge(
                [
                    work("On norm growth", authors=["H. Kučera"]),
                    work("On norm growth", authors=["Kucera, Henry"]),
                ]
            ).works
        )
        == 1
    )


def test_every_given_id_leads_to_its_work():
    works = [work(f"Title number {i % 7}", f"10.1000/{i % 5}", f"W{100 + i % 3}") for i in range(40)]
    found = merge(works)
    for each in works:
        for name in all_ids(each):
            assert found.renamed[name] in {kept.id for kept in found.works}


def slow_groups(works):
    """The same rules by brute force: join any two that match, until nothing changes."""
    groups = [[each] for each in works]
    changed = True
    while changed:
        changed = False
        for i in range(len(groups)):
            for j in range(i + 1, len(groups)):
                if {name for a in groups[i] for name in all_ids(a)} & {
                    name for b in groups[j] for name in all_ids(b)
                }:
                    groups[i] += groups.pop(j)
                    changed = True
                    break
            if changed:
                break
    return len(groups)


def test_merging_by_id_agrees_with_brute_force_in_any_order():
    rng = random.Random(0)
    for _ in range(50):
        works = [
            work(
                f"Distinct title {i}",
                *(f"10.1000/{rng.randrange(12)}" for _ in range(2)),
                f"W{rng.randrange(100, 125)}",
            )
            for i in range(12)
        ]
        expected = slow_groups(works)
        for _ in range(3):
            rng.shuffle(works)
            assert len(merge(works).works) == expected


def test_merging_again_changes_nothing():
    works = [work(f"Some title {i % 4}", authors=[f"Author {i % 2}"]) for i in range(10)]
    once = merge(works).works
    assert merge(once).works == once


def test_nothing_is_merged_into_nothing():
    assert merge([]).works == ()
    assert plain_title("!?") == ""


def test_works_without_a_title_are_not_one_work():
    a, b = work(None, "10.1000/a"), work(None, "10.1000/b")
    assert [each.id for each in merge([a, b]).works] == ["doi:10.1000/a", "doi:10.1000/b"]


def test_a_title_is_taken_from_the_source_that_has_one():
    assert merged_titles(work(None, "10.1000/a"), work("Norms", "10.1000/a")) == ["Norms"]
