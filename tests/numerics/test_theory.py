"""The simplified network against Table 1 written out, closed forms against quadrature; planted faults are seen."""

from __future__ import annotations

import json
import math
from dataclasses import replace

import pytest
import torch
from scipy import integrate, stats

from lnexp import cli, lemmas, meanfield, theory
from lnexp.report import statements
from lnexp.statement import Claim, Statement, exactly

QUICK = {128: 160, 256: 48}


def generator(seed: int = 1) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def by_hand(norm: str, x: torch.Tensor, layers: list[theory.Weights]) -> torch.Tensor:
    """Table 1 for one network, position by position: x (n, d) in, x_Final out."""

    def ln(row: torch.Tensor) -> torch.Tensor:
        centred = row - row.sum() / len(row)
        return centred / torch.sqrt((centred * centred).sum() / len(row))

    def mha(rows: list[torch.Tensor], w: torch.Tensor) -> torch.Tensor:
        return torch.stack([row @ w for row in rows]).sum(dim=0) / len(rows)

    def ffn(row: torch.Tensor, w: theory.Weights) -> torch.Tensor:
        return (row @ w.w1[0]).clamp(min=0) @ w.w2[0]

    rows = list(x)
    for w in layers:
        if norm == "post":
            middle = [ln(row + mha(rows, w.v[0])) for row in rows]
            rows = [ln(row + ffn(row, w)) for row in middle]
        else:
            middle = [row + mha([ln(r) for r in rows], w.v[0]) for row in rows]
            rows = [row + ffn(ln(row), w) for row in middle]
    return torch.stack(rows if norm == "post" else [ln(row) for row in rows])


@pytest.fixture
def tiny() -> tuple[torch.Tensor, list[theory.Weights]]:
    """A network in float64: d = 6, 3 layers, 4 positions."""
    layers = theory.draw(6, 3, 1, generator())
    doubled = [theory.Weights(w.v.double(), w.w1.double(), w.w2.double().requires_grad_()) for w in layers]
    return torch.randn(1, 4, 6, generator=generator(2), dtype=torch.float64), doubled


@pytest.mark.parametrize("norm", theory.NORMS)
def test_the_network_is_table_1(norm: str, tiny: tuple[torch.Tensor, list[theory.Weights]]) -> None:
    x, layers = tiny
    final = theory.layer_norm(theory.forward(norm, x, layers)[-1].output)
    assert torch.allclose(final[0], by_hand(norm, x[0], layers), atol=1e-12)
    straight = theory.forward(norm, x, layers, ffn_backward=False)[-1].output
    assert torch.equal(theory.layer_norm(straight), final)


@pytest.mark.parametrize("norm", theory.NORMS)
def test_gradients_are_those_of_finite_differences(norm: str, tiny: tuple[torch.Tensor, list[theory.Weights]]) -> None:
    x, layers = tiny
    r = torch.randint(0, 2, x.shape, generator=generator(3)) * 2.0 - 1.0
    found = theory.gradient_norms(theory.signs(x.shape, generator(3)), theory.forward(norm, x, layers), layers)

    def loss(layer: int, w2: torch.Tensor) -> float:
        changed = [replace(w, w2=w2) if i == layer else w for i, w in enumerate(layers)]
        return float((r[0] * by_hand(norm, x[0], changed)).sum() / 4)

    with torch.no_grad():
        for layer, w in enumerate(layers):
            total = 0.0
            for cell in range(36):
                change = torch.zeros(36, dtype=torch.float64)
                change[cell] = 1e-6
                above, below = (loss(layer, w.w2 + sign * change.view(1, 6, 6)) for sign in (1, -1))
                total += ((above - below) / 2e-6) ** 2
            assert float(found[0, layer]) == pytest.approx(total, rel=1e-6)


def test_jacobian_of_layer_norm_is_lemma_3s() -> None:
    x = torch.randn(3, 20, generator=generator(), dtype=torch.float64)
    automatic, closed = theory.jacobian_norms(x)
    assert torch.allclose(automatic, closed, rtol=1e-10)
    y = x[0] - x[0].mean()
    eye, ones = torch.eye(20, dtype=torch.float64), torch.ones(20, 20, dtype=torch.float64)
    written = math.sqrt(20) / y.norm() * (eye - torch.outer(y, y) / y.square().sum()) @ (eye - ones / 20)
    assert torch.allclose(torch.func.jacrev(theory.layer_norm)(x[0]), written, atol=1e-12)


@pytest.mark.parametrize("rho", [0.0, 0.2, 0.7, 0.99])
def test_kernels_are_their_integrals(rho: float) -> None:
    s, density, below = math.sqrt(1 - rho * rho), stats.norm.pdf, stats.norm.cdf
    relu, _ = integrate.quad(
        lambda u: density(u) * u * (rho * u * below(rho * u / s) + s * density(rho * u / s)), 0, math.inf
    )
    step, _ = integrate.quad(lambda u: density(u) * below(rho * u / s), 0, math.inf)
    assert meanfield.relu_kernel(rho) == pytest.approx(relu, abs=1e-9)
    assert meanfield.step_kernel(rho) == pytest.approx(step, abs=1e-9)


def test_closed_form_where_it_is_known() -> None:
    alone = meanfield.layers("pre", 14, 1)  # one position: attention adds d, the FFN d/2
    assert [layer.output for layer in alone] == pytest.approx([1 + 1.5 * behind for behind in range(1, 15)])
    many = meanfield.layers("pre", 1, 10**9)[0]  # many: attention adds nothing to the first layer
    assert many.output == pytest.approx(1.5)
    for depth in (1, 6, 14):
        post, pre = (meanfield.layers(norm, depth, 8) for norm in theory.NORMS)
        assert {layer.output for layer in post} == {1.5}
        assert post[-1].gradient == pytest.approx(1 / math.sqrt(3))
        assert pre[-1].gradient == pytest.approx(1 / math.sqrt(2 * pre[-1].output))
        for behind, layer in enumerate(pre, start=1):
            assert 1 + behind / 2 <= layer.output <= 1 + 3 * behind / 2
    assert [x.gradient for x in meanfield.layers("post", 9, 1)] == pytest.approx([1 / math.sqrt(3)] * 9)
    skip = meanfield.layers("post", 9, 1, ffn_backward=False)
    assert skip[0].gradient / skip[-1].gradient == pytest.approx((2 / 3) ** 4)


def test_predicted_numbers_are_those_of_the_paper() -> None:
    """Theorem 1 from Lemma 2's bounds: what the closed form gives must lie between what they allow."""
    first, final = (meanfield.layers("pre", depth, lemmas.POSITIONS)[-1] for depth in (6, 14))
    assert 0.60 < final.gradient / first.gradient < 0.75
    assert math.sqrt(4 / 22) < final.gradient / first.gradient < math.sqrt(10 / 8)


@pytest.fixture(scope="module")
def quick() -> list[Statement]:
    return lemmas.examine(draws=QUICK)


def within(statement: Statement, errors: float = 4.5) -> bool:
    """Say whether a statement holds but for the sampling error of fewer draws than `lnexp probe --theory` takes."""
    room = errors * statement.error
    low, high = statement.low * (1 - statement.tolerance), statement.high * (1 + statement.tolerance)
    return low - room <= statement.measured <= high + room


def test_every_statement_holds(quick: list[Statement]) -> None:
    assert [s for s in quick if s.judged and not within(s)] == []
    loci = {s.locus for s in quick}
    assert loci >= {"Lemma 1", "Lemma 2, Post", "Lemma 2, Pre", "Lemma 3", "Definition 1", "Theorem 1", "Appendix F"}
    assert {s.d for s in quick} == set(QUICK)


def test_errors_are_small_enough_to_tell(quick: list[Statement]) -> None:
    """A statement whose sampling error is as large as what it claims could not fail."""
    for s in quick:
        if s.low == s.high and s.low:
            assert s.error < 0.04 * s.low, s


def test_the_whole_gradient_of_post_ln_does_not_fall_by_root_two_thirds(quick: list[Statement]) -> None:
    estimates = [s for s in quick if not s.judged]
    assert len(estimates) == 13 * len(QUICK)
    assert all(s.measured > 0.9 for s in estimates)
    skip = [s for s in quick if "counted as 1" in s.name]
    assert all(abs(s.measured / math.sqrt(2 / 3) - 1) < 0.05 + 4.5 * s.error for s in skip)


@pytest.mark.parametrize(
    ("fault", "seen_by"),
    [
        ("variance", "E‖x^{post,5}‖² / d"),
        ("no_final_norm", "‖dL/dW^{2,L}‖ √n/d, Post"),
        ("no_attention", "E‖x^{pre,3}‖² over the closed form"),
    ],
)
def test_a_planted_fault_is_seen(fault: str, seen_by: str, monkeypatch: pytest.MonkeyPatch) -> None:
    draw, norms = theory.draw, theory.gradient_norms
    scale = {"variance": ("w2", 1.2), "no_attention": ("v", 0.0)}.get(fault)
    if scale:
        name, factor = scale
        monkeypatch.setattr(
            theory, "draw", lambda *a: [replace(w, **{name: getattr(w, name) * factor}) for w in draw(*a)]
        )
    else:

        def without(loss: theory.Loss, *rest: object, **more: object) -> torch.Tensor:
            with monkeypatch.context() as patch:
                patch.setattr(theory, "layer_norm", lambda x: x)
                return norms(loss, *rest, **more)  # type: ignore[arg-type]

        monkeypatch.setattr(theory, "gradient_norms", without)
    found = lemmas.examine(draws={64: 64})
    assert seen_by in {s.name for s in found if s.judged and not within(s)}


def test_gaussian_tail_is_the_chi_square_one(quick: list[Statement]) -> None:
    for s in quick:
        if s.name.startswith("‖Y‖²"):
            eps = 0.1 if "0.1)" in s.name else 0.25
            exact = float(stats.chi2.sf(s.d * (1 + eps), s.d))
            assert s.measured == pytest.approx(exact, abs=4.5 * math.sqrt(exact / s.draws))
            assert exact < s.high


@pytest.mark.slow
def test_all_widths_at_full_size() -> None:
    """What `lnexp probe --theory` runs, without allowance."""
    heard: list[int] = []
    found = lemmas.examine(heard.append)
    assert [s for s in found if s.judged and not s.holds] == []
    assert len(heard) == lemmas.steps()
    falls = [s.measured for s in found if s.name.endswith("over L = 6, Pre")]
    assert len(falls) == 6
    assert all(0.60 < fall < 0.75 for fall in falls)


def test_ratio_and_its_error() -> None:
    claim = exactly("x", "y", "2", 2, 0.01)
    squares = torch.rand(50, generator=generator()) + 0.5
    same = claim.ratio(8, "", 4 * squares, squares)
    assert (same.measured, same.error) == (pytest.approx(2), pytest.approx(0, abs=1e-6))
    assert same.holds
    # Independent draws: the spread of the ratio over many samples is what the error says.
    samples = torch.rand(400, 2, 50, generator=generator(5)) + 0.5
    ratios = [claim.ratio(8, "", a, b) for a, b in samples]
    spread = torch.tensor([r.measured for r in ratios]).std()
    assert float(spread) == pytest.approx(sum(r.error for r in ratios) / len(ratios), rel=0.15)


def test_holds_means_within_the_bounds_and_the_tolerance() -> None:
    claim = Claim("x", "y", "1 to 2", 1, 2, 0.1)
    assert [claim.of(1, "", v, 0, 1).holds for v in (0.89, 0.91, 1.5, 2.19, 2.21)] == [False, True, True, True, False]
    assert not claim.of(1, "", math.nan, 0, 1).holds


def rows(*measured: float) -> list[dict[str, object]]:
    claim = exactly("E‖x‖² | d", "Lemma 2", "3/2", 1.5, 0.02)
    return [
        claim.of(d, f"l = {layer}", value, 0.001, 10).row()
        for d in (128, 256)
        for layer, value in enumerate(measured, start=1)
    ]


def test_table_names_what_does_not_hold() -> None:
    text = statements.render(rows(1.5, 1.51, 1.6), "md", ["a note"])
    assert "1 claims, 6 measurements judged: 4 hold, 2 do not." in text
    line = next(line for line in text.splitlines() if "Lemma 2" in line)
    assert "| l = 1 to 3 | 3/2       | 1.5000 to 1.6000 | 1.5000 to 1.6000 |        2% | no: d=128 l = 3" in line
    assert r"E‖x‖² \| d" in line
    assert text.endswith("- a note\n")


@pytest.mark.parametrize(("value", "code"), [(1.5, 0), (1.6, 1), (math.nan, 1)])
def test_exit_code_says_whether_all_hold(
    value: float, code: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    claim = exactly("x", "Lemma 2", "3/2", 1.5, 0.02)

    def examine(step: object) -> list[Statement]:
        step(128)  # type: ignore[operator]
        return [claim.of(128, "", value, 0.0, 1)]

    monkeypatch.setattr(lemmas, "examine", examine)
    assert cli.main(["probe", "--theory"]) == code
    assert "measuring networks of width 128" in capsys.readouterr().err
    assert cli.main(["probe", "--theory", "--format=json"]) == code
    (row,) = json.loads(capsys.readouterr().out)
    assert row["holds"] is (code == 0)


@pytest.mark.parametrize("rest", [["--format", "xml"], ["--format"], ["d=128"]])
def test_wrong_options_are_refused_at_once(rest: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["probe", "--theory", *rest]) == 2
    assert "lnexp probe: " in capsys.readouterr().err
