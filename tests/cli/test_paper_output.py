"""normscope paper -o: the page is written, named after the library, and refused before anybody is asked."""

from tests.cli.calling import call, call_json


def test_the_page_of_the_bundled_paper(tmp_path):
    path = tmp_path / "paper.html"
    assert call_json("paper", "2010.09697", "--offline", "-o", path)["output"] == str(path)
    text = path.read_text("utf-8")
    assert text.count("</tr>") > 73 and "Inductive Bias from Gradient Descent</h1>" in text


def test_a_library_gives_the_page_its_name(tmp_path):
    library, path = tmp_path / "my refs.bib", tmp_path / "list.html"
    library.write_text("@article{a, title={One}, author={Ada Lovelace}, year={1843}}")
    assert call("paper", library, "--offline", "-o", path).code == 0
    assert "my refs.bib</h1>" in path.read_text("utf-8")


def test_a_place_that_cannot_be_written_is_refused_first(tmp_path):
    done = call("paper", "2305.00001", "-o", tmp_path)
    assert done.code == 2 and "is a folder" in done.stderr
