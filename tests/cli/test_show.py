import json


def test_show_prints_the_winner_first(cli, store_path):
    result = cli("show", "llama-3-8b.mlp.up", "--store", store_path)
    assert (result.code, result.err) == (0, "")
    assert result.out.splitlines()[2].startswith("on NVIDIA H200, cuDNN 9.27.0")
    assert result.out.splitlines()[4].startswith("won")


def test_show_as_json_has_every_candidate(cli, store_path):
    payload = json.loads(cli("show", "llama-3-8b.mlp.up", "--store", store_path, "--json").out)
    (result,) = payload["results"]
    assert [c["standing"] for c in result["candidates"]] == ["won", "slower", "slower", "slower", "screened", None]
    assert result["candidates"][-1]["signal"] == "SIGSEGV"
    assert payload["targets"][0]["device"] == "NVIDIA H200"


def test_a_problem_may_be_named_by_the_beginning_of_its_key(cli, store_path):
    key = json.loads(cli("show", "huge", "--store", store_path, "--json").out)["problem"]
    assert cli("show", key[:8], "--store", store_path).code == 0


def test_a_problem_that_is_not_there_exits_with_2(cli, store_path):
    result = cli("show", "lama-3-8b.mlp.up", "--store", store_path)
    assert result.code == 2
    assert "did you mean llama-3-8b.mlp.up" in result.err
