"""Real-world headers, and what each must give: a column, a question (which one?), or a refusal (no steps)."""

import numpy as np
import pytest

from normscope.errors import SeriesError, UsageError
from normscope.theory.logs.column_choice import chosen_points
from normscope.theory.logs.column_words import kind_of
from normscope.theory.logs.log_table import LogTable

ASKS, REFUSES = UsageError, SeriesError

HEADERS = [
    # by hand, and what normscope exports
    ("step,norm", "norm"),
    ("norm,step", "norm"),
    ("step,norm,loss", "norm"),
    ("loss,step,norm", "norm"),
    ("step,norm,embedding_norm", "norm"),
    ("step,rms", "rms"),
    ("step,cosine", "cosine"),
    ("Step,L2 norm", "L2 norm"),
    ("iteration,weight_norm", "weight_norm"),
    ("iter,param_norm,lr,wd", "param_norm"),
    ("step,‖θ‖", "‖θ‖"),
    ("step,||w||,loss", "||w||"),
    ("step,hidden_norm,auxiliary_norm,unembedding_norm,applied_update_norm,train_loss,test_loss", ASKS),
    ("step,hidden_norm,applied_update_norm,train_loss,test_loss", "hidden_norm"),
    ("step,loss", ASKS),
    ("step,lr", ASKS),
    ("step,lr,weight_decay", ASKS),
    ("step,grad_norm", ASKS),
    ("step,loss,grad_norm,lr", ASKS),
    ("step,update_norm", ASKS),
    ("step,foo", "foo"),
    ("step,foo,bar", ASKS),
    ("step,foo,loss", ASKS),
    ("step,foo,lr,epoch", "foo"),
    ("step", REFUSES),
    ("norm", REFUSES),
    ("epoch,norm", REFUSES),
    ("epoch,loss,accuracy", REFUSES),
    ("tokens,param_norm", REFUSES),
    ("Wall time,Value", REFUSES),
    ("time,norm", REFUSES),
    # TensorBoard's CSV
    ("Wall time,Step,Value", "Value"),
    ("wall_time,step,value", "value"),
    # W&B: charts
    ("Step,brisk-sun-3 - norm,brisk-sun-3 - norm__MIN,brisk-sun-3 - norm__MAX", "brisk-sun-3 - norm"),
    ("Step,lr-1e-3 - param_norm,lr-1e-3 - param_norm__MIN,lr-1e-3 - param_norm__MAX", "lr-1e-3 - param_norm"),
    ("Step,a - norm,a - norm__MIN,a - norm__MAX,b - norm,b - norm__MIN,b - norm__MAX", ASKS),
    ("Step,a - _step,a - _step__MIN,a - _step__MAX,a - norm,a - norm__MIN,a - norm__MAX", "a - norm"),
    ("train/global_step,a - train/loss,a - train/loss__MIN,a - train/loss__MAX", ASKS),
    ("train/global_step,a - train/grad_norm,a - train/grad_norm__MIN", ASKS),
    ("Relative Time (Process),a - norm,a - norm__MIN,a - norm__MAX", REFUSES),
    ("Step,norm run - loss,norm run - loss__MIN,norm run - loss__MAX", ASKS),
    ("Step,a - weights/l2,a - weights/l2__MIN,a - weights/l2__MAX", "a - weights/l2"),
    # W&B: histories
    (",_step,_runtime,_timestamp,norm", "norm"),
    ("_runtime,_timestamp,_step,train/loss,param_norm", "param_norm"),
    ("Unnamed: 0,_step,_runtime,_timestamp,train/loss", ASKS),
    ("_runtime,_timestamp,norm", REFUSES),
    ("_step,_runtime,_timestamp,weights_norm,gradients_norm", "weights_norm"),
    # Hugging Face
    ("epoch,grad_norm,learning_rate,loss,step", ASKS),
    ("epoch,eval_loss,eval_runtime,eval_samples_per_second,eval_steps_per_second,step", ASKS),
    ("epoch,grad_norm,learning_rate,loss,step,param_norm", "param_norm"),
    ("step,loss,eval_mcc", ASKS),
    ("step,total_flos,train_loss,train_runtime,train_samples_per_second", ASKS),
    ("num_input_tokens_seen,loss,step,weight_norm", "weight_norm"),
    # Lightning
    ("epoch,step,train_loss,lr-AdamW", ASKS),
    ("epoch,step,param_norm_step,param_norm_epoch", ASKS),
    ("epoch,step,param_norm_step,loss_step", "param_norm_step"),
    ("epoch,grad_2.0_norm_total,step,train_loss_step", ASKS),
    ("trainer/global_step,param_norm,lr-AdamW/pg1,lr-AdamW/pg2,lr-AdamW-weight_decay", "param_norm"),
    ("epoch,step,hp_metric", ASKS),
    # others
    ("num_updates,loss,ppl,wps,ups,gnorm,clip", ASKS),  # fairseq
    ("iteration,lm loss,params norm,grad norm,learning rate,loss scale", "params norm"),  # Megatron
    ("iteration,lm loss,grad norm,learning rate,num zeros", ASKS),
    (
        "step,optim/total_grad_norm,optim/param_norm.avg,train/CrossEntropyLoss",
        "optim/param_norm.avg",
    ),  # OLMo
    ("step,optim/param_norm.avg,optim/param_norm.max,train/CrossEntropyLoss", ASKS),
    ("step,l2_norm/param,l2_norm/grad,l2_norm/moment,l2_norm/update", "l2_norm/param"),  # Composer
    ("step,norms/layer.0,norms/layer.1", ASKS),
    ("step,layer_norm,norm_ratio", "layer_norm"),
    ("step,param_norm,layer_norm", ASKS),
    ("step,param_norm,max_grad_norm", "param_norm"),
    ("step,param_norm,norm_loss,logit_norm,activation_norm", "param_norm"),
    ("step,activation_norm,loss", ASKS),
    ("step,trust_ratio,weight_norm,adam_norm", ASKS),
    ("Iteration\tNorm", "Norm"),
    ("stage,step,prev_step,tensor,component,numel,sumsq,dot", ASKS),  # normscope export of a run
]


def of_header(header):
    """A table with these columns; steps are whole numbers, and every column has its own values."""
    names = header.replace("\t", ",").split(",")
    whole = {name: np.arange(5.0) for name in names if kind_of(name) == "step"}
    return LogTable("log", "CSV file", {n: whole.get(n, np.arange(5) + i / 8) for i, n in enumerate(names)})


@pytest.mark.parametrize(("header", "expected"), HEADERS)
def test_a_header_gives_its_column_or_no_number_at_all(header, expected):
    table = of_header(header)
    if isinstance(expected, str):
        found = chosen_points(table)
        assert found.column == expected
        np.testing.assert_array_equal(found.values, table.columns[expected])
        assert f"values: {expected!r}" in found.notes[0] and "step column: " in found.notes[0]
    else:
        with pytest.raises(expected) as error:
            chosen_points(table)
        told = ("--column" in str(error.value)) if expected is ASKS else "no step column" in str(error.value)
        assert told or "no column of values" in str(error.value)


def test_the_table_of_headers_is_large():
    assert len(HEADERS) >= 60 and len({header for header, _ in HEADERS}) == len(HEADERS)


@pytest.mark.parametrize(
    "header", [header for header, expected in HEADERS if expected is ASKS and "," in header]
)
def test_a_named_column_answers_the_question(header):
    table = of_header(header)
    for name in table.columns:
        if kind_of(name) != "step":
            assert chosen_points(table, name).values.tolist() == table.columns[name].tolist()


def test_order_of_the_columns_does_not_matter():
    rng = np.random.default_rng(0)
    for header, expected in HEADERS:
        names = header.replace("\t", ",").split(",")
        table = of_header(header)
        shuffled = LogTable("log", "CSV file", {n: table.columns[n] for n in rng.permutation(names).tolist()})
        if isinstance(expected, str):
            assert chosen_points(shuffled).column == expected
        else:
            with pytest.raises(expected):
                chosen_points(shuffled)


def test_training_steps_go_before_counts_of_log_calls_and_the_difference_is_said():
    columns = {"_step": [0, 1, 2], "train/global_step": [0, 500, 1000], "norm": [1, 2, 3]}
    table = LogTable("log", "CSV file", {name: np.array(v, dtype=float) for name, v in columns.items()})
    found = chosen_points(table)
    assert found.steps.tolist() == [0, 500, 1000]
    assert found.notes[0].startswith("step column: 'train/global_step'") and "_step" in found.notes[1]


def test_two_step_columns_of_one_rank_that_differ_are_refused():
    columns = {"a - _step": [0, 1, 2], "b - _step": [0, 5, 10], "norm": [1, 2, 3]}
    table = LogTable("log", "CSV file", {name: np.array(v, dtype=float) for name, v in columns.items()})
    with pytest.raises(SeriesError, match="several step columns, which differ: a - _step, b - _step"):
        chosen_points(table)


def test_epochs_and_tokens_are_offered_and_not_used():
    table = LogTable("log", "CSV file", {"tokens": np.arange(3.0), "norm": np.arange(3.0)})
    with pytest.raises(
        SeriesError, match="no step column: it has tokens, norm; expected one of step, .*'tokens' as"
    ):
        chosen_points(table)
