"""The protocol against a direct transcription of what the authors' code does with one matrix of features and label."""

import csv
import doctest
from collections import Counter
from importlib import resources

import numpy as np
import pytest

from quantprop import datasets
from quantprop.experiments import protocol
from quantprop.experiments.protocol import Experiment, follows_ep, model_of, split


def legacy_fold(name, i, k):
    """Features and label in one matrix, its rows shuffled in place; block k tests; standardised on the others."""
    data = datasets.load(name, "paper")
    matrix = np.hstack([data.X, data.y[:, None]])
    np.random.RandomState(10 * i).shuffle(matrix)
    size = matrix.shape[0] // 10
    test = matrix[k * size : (k + 1) * size]
    train = np.vstack([matrix[: k * size], matrix[(k + 1) * size :]])
    features = [(part[:, :-1] - train[:, :-1].mean(axis=0)) for part in (train, test)]
    for j in range(data.X.shape[1]):
        spread = np.sqrt(np.mean((train[:, j] - train[:, j].mean()) ** 2))
        if len(set(train[:, j])) > 1:
            for part in features:
                part[:, j] /= spread
    return features[0], train[:, -1], features[1], test[:, -1]


@pytest.mark.parametrize(("name", "i", "k"), [("wine2", 0, 0), ("wine2", 3, 9), ("ionosphere", 1, 4), ("pima", 99, 5)])
def test_folds_are_those_of_the_legacy_shuffle(name, i, k):
    expected = legacy_fold(name, i, k)
    found = split(Experiment(name, round=i, fold=k))
    for ours, theirs in zip(found, expected, strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-12, atol=1e-12)


def test_a_constant_column_is_centred_and_not_scaled():
    found = split(Experiment("ionosphere"))
    assert datasets.load("ionosphere", "paper").feature_names[1] == "V2"
    assert not found.x[:, 1].any()
    assert not found.x_test[:, 1].any()


def test_years_are_drawn_one_by_one_and_left_as_they_are():
    data = datasets.load("mining", "paper")
    generator = np.random.RandomState(7)
    train = [generator.uniform() > 0.5 for _ in data.y]
    found = split(Experiment("mining", split="year", round=7))
    assert found.x[:, 0].tolist() == [year for year, kept in zip(data.X[:, 0], train, strict=True) if kept]
    assert found.y_test.tolist() == [count for count, kept in zip(data.y, train, strict=True) if not kept]


def test_events_are_drawn_one_by_one_and_counted_by_year():
    with (resources.files(datasets) / "data" / "coal_dates.csv").open() as stream:
        dates = [float(line["date"]) for line in csv.DictReader(stream)]
    assert dates == sorted(dates)
    generator = np.random.RandomState(11)
    counts = {True: Counter(), False: Counter()}
    for date in dates:
        counts[bool(generator.uniform() > 0.5)][int(date)] += 1
    found = split(Experiment("mining", split="event", round=11))
    years = list(range(1851, 1963))
    assert found.x[:, 0].tolist() == found.x_test[:, 0].tolist() == years
    assert found.y.tolist() == [counts[True][year] for year in years]
    assert found.y_test.tolist() == [counts[False][year] for year in years]


def test_variants_differ_in_data_and_in_the_prior_mean_of_vb():
    assert len(split(Experiment("pima", "paper")).y) == 732 - 73
    assert len(split(Experiment("pima", "clean")).y) == 532 - 53
    mining = {v: Experiment("mining", v, split="year") for v in ("paper", "code", "clean")}
    assert [model_of(mining["paper"], m, 1).mean for m in ("ep", "qp", "vb", "laplace")] == [1.0, 1.0, 0.0, 1.0]
    assert [model_of(mining["code"], m, 1).mean for m in ("ep", "qp", "vb", "laplace")] == [1.0, 1.0, 0.0, 1.0]
    assert [model_of(mining["clean"], m, 1).mean for m in ("ep", "qp", "vb", "laplace")] == [1.0, 1.0, 1.0, 1.0]
    assert [follows_ep("paper", m) for m in ("ep", "qp", "vb", "laplace")] == [False, True, False, False]
    assert [follows_ep("clean", m) for m in ("ep", "qp", "vb", "laplace")] == [False, True, True, True]


def test_examples_in_docstrings():
    result = doctest.testmod(protocol)
    assert result.attempted > 0
    assert result.failed == 0


def test_ard_has_a_lengthscale_a_feature():
    kernel = model_of(Experiment("wine2", kernel="ard"), "ep", 13).kernel
    assert np.array_equal(kernel.lengthscale, np.ones(13))


@pytest.mark.parametrize(
    ("choice", "message"),
    [
        ({"dataset": "iris"}, "dataset"),
        ({"dataset": "mining"}, "split of mining must be one of year, event; got 'fold'"),
        ({"dataset": "wine2", "split": "year"}, "split of wine2 must be one of fold"),
        ({"dataset": "wine2", "fold": 10}, "fold"),
        ({"dataset": "wine2", "round": -1}, "round must be at least 0"),
        ({"dataset": "wine2", "variant": "Paper"}, "variant of wine2 must be one of paper, code, clean; got 'Paper'"),
    ],
)
def test_what_does_not_exist_is_refused(choice, message):
    with pytest.raises(ValueError, match=message):
        Experiment(**choice)
