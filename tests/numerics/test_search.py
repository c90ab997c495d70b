"""Beam search against fairseq's SequenceGenerator on real models, and against all there is on a small search space."""

from __future__ import annotations

import itertools
import math
from types import SimpleNamespace

import pytest
import torch
from fairseq.data import Dictionary
from fairseq.sequence_generator import SequenceGenerator
from torch.nn import functional

from lnexp.backend.generate import length_limit, translate
from lnexp.backend.incremental import Decoder, Weights
from lnexp.backend.model import build_model
from lnexp.backend.search import Rules, search, top
from lnexp.config import Decode, Model, Size

PAD, EOS = 1, 2
CPU = torch.device("cpu")
WORDS = Dictionary()
for _symbol in "abcdefghijklmnopqrstuvw":
    WORDS.add_symbol(_symbol)


def padded(lines: list[list[int]]) -> torch.Tensor:
    width = max(map(len, lines)) + 1
    return torch.tensor([[PAD] * (width - 1 - len(line)) + line + [EOS] for line in lines])


def random_lines(count: int, seed: int, longest: int = 9) -> list[list[int]]:
    draw = torch.Generator().manual_seed(seed)
    lengths = torch.randint(0, longest, (count,), generator=draw).tolist()
    return [torch.randint(4, len(WORDS), (n,), generator=draw).tolist() for n in [0, *lengths]]


def build(norm: str, share: str = "all", updates: int = 0) -> torch.nn.Module:
    """A small model; with `updates` it has begun to learn to copy, so that sentences end before they must."""
    torch.manual_seed(3)
    size = Size(2, 2, 16, 32, 4, share_embeddings=share)
    model = build_model(size, Model(norm), SimpleNamespace(source_dictionary=WORDS, target_dictionary=WORDS))
    optimizer = torch.optim.Adam(model.parameters(), 1e-2)
    for update in range(updates):
        lines = [line for line in random_lines(40, update, 6) if line]
        width = max(map(len, lines)) + 1
        target = torch.tensor([line + [EOS] + [PAD] * (width - 1 - len(line)) for line in lines])
        previous = torch.cat([torch.full((len(lines), 1), EOS), target[:, :-1]], 1)
        logits = model(padded(lines), torch.tensor([len(line) + 1 for line in lines]), previous)[0]
        optimizer.zero_grad()
        functional.cross_entropy(logits.flatten(0, 1), target.flatten(), ignore_index=PAD).backward()
        optimizer.step()
    return model.eval()


def fairseqs(model: torch.nn.Module, source: torch.Tensor, decode: Decode) -> list[list[tuple[list[int], float]]]:
    generator = SequenceGenerator([model], WORDS, beam_size=decode.beam, max_len_a=decode.max_len_a,
                                  max_len_b=decode.max_len_b, len_penalty=decode.lenpen)  # fmt: skip
    net_input = {"src_tokens": source, "src_lengths": source.ne(PAD).sum(1)}
    found = generator.generate([model], {"net_input": net_input})
    return [[(h["tokens"].tolist(), float(h["score"])) for h in sentence] for sentence in found]


def ours(model: torch.nn.Module, source: torch.Tensor, decode: Decode) -> list[list[tuple[list[int], float]]]:
    limit = length_limit(decode, source.size(1), model.max_decoder_positions())
    rules = Rules(decode.beam, limit, decode.lenpen, EOS, PAD)
    with torch.inference_mode():
        found = search(Decoder(Weights(model), source), len(source), rules, CPU)
    return [[tuple(h) for h in sentence] for sentence in found]


def same(mine: list[list[tuple[list[int], float]]], theirs: list[list[tuple[list[int], float]]]) -> None:
    assert [[tokens for tokens, _ in sentence] for sentence in mine] == [[t for t, _ in s] for s in theirs]
    for sentence, other in zip(mine, theirs, strict=True):
        assert [score for _, score in sentence] == pytest.approx([score for _, score in other], abs=1e-4)


@pytest.fixture(scope="module")
def learners() -> dict[str, torch.nn.Module]:
    return {norm: build(norm, updates=60) for norm in ("post", "pre")}


@pytest.mark.parametrize("norm", ["post", "pre"])
@pytest.mark.parametrize("beam", [1, 4, 5])
@pytest.mark.parametrize(("lenpen", "a", "b"), [(0.6, 1.0, 50), (1.0, 0.0, 4), (1.2, 1.2, 10)])
def test_a_model_that_has_begun_to_learn_says_what_fairseq_makes_it_say(learners, norm, beam, lenpen, a, b):
    source, decode = padded(random_lines(30, seed=beam)), Decode(beam, lenpen, a, b)
    mine = ours(learners[norm], source, decode)
    same(mine, fairseqs(learners[norm], source, decode))
    assert len({len(sentence[0][0]) for sentence in mine}) > 3  # they end at different steps: the batch shrinks


@pytest.mark.parametrize("share", ["all", "decoder", "none"])
@pytest.mark.parametrize("norm", ["post", "pre"])
@pytest.mark.parametrize("beam", [1, 5, 26])
def test_so_does_an_untrained_one(norm, share, beam):
    model, source, decode = build(norm, share), padded(random_lines(6, seed=2)), Decode(beam, 1.0, 1.2, 3)
    same(ours(model, source, decode), fairseqs(model, source, decode))


def test_a_source_of_the_end_symbol_alone(learners):
    source, decode = padded([[]]), Decode(5, 1.0, 0.0, 1)
    same(ours(learners["pre"], source, decode), fairseqs(learners["pre"], source, decode))


class Table:
    """Logits drawn at random for each prefix; as a Stepper it must be told the prefixes by tokens and parents."""

    def __init__(self, sentences: int, vocabulary: int) -> None:
        self.vocabulary, self._prefixes = vocabulary, [[()] for _ in range(sentences)]
        self._names = list(range(sentences))

    def logits(self, sentence: int, prefix: tuple[int, ...]) -> torch.Tensor:
        seed = hash((sentence, *prefix)) % 2**31
        return 2 * torch.randn(self.vocabulary, generator=torch.Generator().manual_seed(seed))

    def step(self, tokens: torch.Tensor, parents: torch.Tensor) -> torch.Tensor:
        pairs = zip(tokens.tolist(), parents.tolist(), self._prefixes, strict=True)
        self._prefixes = [[old[p] + (t,) for t, p in zip(*both, strict=True)] for *both, old in pairs]
        named = zip(self._names, self._prefixes, strict=True)
        return torch.stack([torch.stack([self.logits(name, p) for p in prefixes]) for name, prefixes in named])

    def keep(self, rows: torch.Tensor) -> None:
        self._names, self._prefixes = ([x[row] for row in rows.tolist()] for x in (self._names, self._prefixes))


@pytest.mark.parametrize("lenpen", [0.0, 0.6, 1.2])
def test_a_beam_as_wide_as_the_search_space_finds_all_there_is(lenpen):
    vocabulary, max_len = 6, 3
    words = [token for token in range(vocabulary) if token not in (PAD, EOS)]
    everything = [s for n in range(1, max_len + 1) for s in itertools.product(words, repeat=n)]
    assert len(everything) == 4 + 16 + 64
    table = Table(3, vocabulary)
    found = search(table, 3, Rules(90, max_len, lenpen, EOS, PAD), CPU)
    for sentence, hypotheses in enumerate(found):
        expected = []
        for words_ in everything:
            prefix, total = (EOS,), 0.0
            for token in (*words_, EOS):
                total += table.logits(sentence, prefix).double().log_softmax(0)[token].item()
                prefix += (token,)
            expected.append((list(prefix[1:]), total / len(prefix[1:]) ** lenpen))
        expected.sort(key=lambda pair: -pair[1])
        same([[tuple(h) for h in hypotheses]], [expected])


def test_a_step_before_which_check_raises_is_the_last(learners):
    calls = iter(range(3))

    def check() -> None:
        if next(calls) == 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        search(Table(2, 30), 2, Rules(4, 10, 1.0, EOS, PAD), CPU, check)


def test_where_logits_are_not_numbers_a_sentence_has_no_hypothesis():
    class Broken(Table):
        def logits(self, sentence: int, prefix: tuple[int, ...]) -> torch.Tensor:
            return super().logits(sentence, prefix) * (math.nan if sentence == 1 else 1)

    whole, broken = search(Broken(2, 30), 2, Rules(4, 5, 1.0, EOS, PAD), CPU)
    assert broken == [] and len(whole) == 4


@pytest.mark.parametrize(("columns", "count"), [(10_000, 10), (2_077, 8), (100, 10), (9, 9)])
def test_top_is_topk(columns, count):
    x = torch.randn(7, columns, generator=torch.Generator().manual_seed(columns))
    values, places = top(x, count)
    wanted = x.topk(count)
    assert torch.equal(values, wanted.values) and torch.equal(places, wanted.indices)


def test_length_limit_is_fairseqs_and_at_least_a_token():
    assert length_limit(Decode(max_len_a=1.2, max_len_b=10), 9, 1024) == 20
    assert length_limit(Decode(max_len_a=2, max_len_b=0), 900, 1024) == 1023
    assert length_limit(Decode(max_len_a=0.1, max_len_b=0), 5, 1024) == 1


class Batches:
    """What translate asks of a task: batches of a split, in an order of their own."""

    target_dictionary = WORDS

    def __init__(self, lines: list[list[int]], each: int) -> None:
        order = sorted(range(len(lines)), key=lambda i: len(lines[i]))
        groups = [order[i : i + each] for i in range(0, len(order), each)]
        self.batches = [
            {"id": torch.tensor(ids), "net_input": {"src_tokens": padded([lines[i] for i in ids])}} for ids in groups
        ]

    def dataset(self, split: str) -> None: ...

    def get_batch_iterator(self, dataset: None, **how: object) -> Batches:
        return self

    def next_epoch_itr(self, shuffle: bool) -> list[dict]:
        return self.batches


def run(
    model: torch.nn.Module, task: Batches, threads: int = 1, rank: int = 0, size: int = 1, **more
) -> dict[int, str]:
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        found = translate(model, task, "test", Decode(5, 1.2, 1.2, 10), CPU, lambda: None, rank, size, **more)
        assert torch.get_num_threads() == threads
        return found
    finally:
        torch.set_num_threads(before)


def test_translate_gives_fairseqs_best_for_each_sentence_whoever_shares_the_work(learners):
    model, lines = learners["post"], random_lines(50, seed=8, longest=14)
    task = Batches(lines, each=20)
    expected = {}
    for batch in task.batches:
        best = fairseqs(model, batch["net_input"]["src_tokens"], Decode(5, 1.2, 1.2, 10))
        for index, sentence in zip(batch["id"].tolist(), best, strict=True):
            expected[index] = WORDS.string(torch.tensor(sentence[0][0]))
    assert len(expected) == 51
    assert run(model, task) == run(model, task, threads=2) == run(model, task, threads=3) == expected
    first, second = (run(model, task, rank=rank, size=2) for rank in (0, 1))
    assert first | second == expected and not first.keys() & second.keys()


def test_what_check_raises_comes_out_of_several_threads_and_leaves_their_number(learners):
    class Stop(Exception):
        pass

    def check() -> None:
        raise Stop

    torch.set_num_threads(2)
    try:
        with pytest.raises(Stop):
            translate(learners["pre"], Batches(random_lines(9, 1), 5), "test", Decode(2), CPU, check, 0, 1)
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(1)
