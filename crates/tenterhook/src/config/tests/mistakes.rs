use super::*;

#[test]
fn all_mistakes_of_all_layers_are_shown_at_once() {
    let file = "\
task = \"lab\"

[trainer]
max_epoch = 3
val_check_interval = \"soon\"
accumulate_grad_batches = 0

[model]
droput = 0.5
hidden = [8, \"x\", 4, \"y\"]

[[hooks]]
use = \"chekpoint\"

[[hooks]]
use = \"early_stopping\"
patienc = 1
";
    let shown = error(
        file,
        &[("TENTER__MODEL__KIND", "cn")],
        &["trainer.max_steps=abc", "optimizer.lr=fast", "hooks.nobody.x=1", "nonsense"],
    );
    let expected = "\
14 problems in train.toml
train.toml:4:1: unknown key `max_epoch` in [trainer]
   4 | max_epoch = 3
     | ^^^^^^^^^ did you mean `max_epochs`?
train.toml:5:22: the validation interval must be a number of batches, a fraction from 0.0 to 1.0, or a time such as \"30 min\"
   5 | val_check_interval = \"soon\"
     |                      ^^^^^^
train.toml:6:27: `accumulate_grad_batches` must be 1 or more
   6 | accumulate_grad_batches = 0
     |                           ^
train.toml:9:1: unknown key `droput` in [model]
   9 | droput = 0.5
     | ^^^^^^ did you mean `dropout`?
train.toml:10:14: invalid type: text \"x\", expected a whole number
  10 | hidden = [8, \"x\", 4, \"y\"]
     |              ^^^
train.toml:10:22: invalid type: text \"y\", expected a whole number
  10 | hidden = [8, \"x\", 4, \"y\"]
     |                      ^^^
train.toml:13:7: there is no hook named `chekpoint` to use
  13 | use = \"chekpoint\"
     |       ^^^^^^^^^^^ did you mean `checkpoint`?
train.toml:15:1: missing key `monitor` in hook `early_stopping`
  15 | [[hooks]]
     | ^^^^^^^^^ set `monitor`
train.toml:17:1: unknown key `patienc` in hook `early_stopping`
  17 | patienc = 1
     | ^^^^^^^ did you mean `patience`?
TENTER__MODEL__KIND=cn: unknown value `cn`; did you mean `cnn`?
--set nonsense: it has no key and value; for example, write trainer.max_epochs=3
--set hooks.nobody.x=1: there is no element named `nobody`; there are: chekpoint, early_stopping
--set trainer.max_steps=abc: invalid type: text \"abc\", expected a whole number; write a whole number, -1 or more, such as -1
--set optimizer.lr=fast: invalid type: text \"fast\", expected a number";
    assert_eq!(shown, expected);
}

#[test]
fn every_bad_input_says_its_place_and_its_fix() {
    for (file, place, hint) in [
        ("[trainr]\nmax_epochs = 1", "train.toml:1:2", "did you mean `trainer`?"),
        ("devices = \"cpu\"", "train.toml:1:1", "did you mean `device`?"),
        ("zzz = 1", "train.toml:1:1", "there are: note, model, optimizer, schedulers, weights, task, device"),
        ("device = 3", "train.toml:1:10", "invalid type: whole number `3`, expected a text"),
        ("task = \"lap\"", "train.toml:1:8", "did you mean `lab`?"),
        ("task = 3", "train.toml:1:8", "expected a text"),
        ("trainer = 3", "train.toml:1:11", "invalid type: whole number `3`, expected a table"),
        (
            "[trainer]\nmax_epochs = \"many\"",
            "train.toml:2:14",
            "invalid type: text \"many\", expected a whole number",
        ),
        ("[trainer]\nmax_epochs = -2", "train.toml:2:14", "`max_epochs` must be -1 (no limit), 0 or more"),
        ("[trainer]\nlimit_val_batches = 1.5", "train.toml:2:21", "a fraction from 0.0 to 1.0"),
        ("[trainer]\ncheck_val_every_n_epoch = 0", "train.toml:2:27", "set `limit_val_batches = 0`"),
        ("[model.head]\nbais = true", "train.toml:2:1", "did you mean `bias`?"),
        ("[model]\nhead = 1", "train.toml:2:8", "expected a table"),
        ("trainer = [3]", "train.toml:1:11", "expected a table"),
        ("hooks_config = [[\"mycrate::hooks::Seen\"]]", "train.toml:1:16", "expected a table"),
        ("model = []", "train.toml:1:9", "expected a table"),
        ("[model]\nhead = [true]", "train.toml:2:8", "expected a table"),
        ("optimizer = [\"sgd\", 0.1]", "train.toml:1:13", "expected a table"),
        ("hooks = 3", "train.toml:1:9", "[[hooks]]"),
        ("hooks = [3]", "train.toml:1:10", "[[hooks]]"),
        ("[[hooks]]\nmonitor = \"m\"", "train.toml:1:1", "missing key `use` in [[hooks]]"),
        ("[[hooks]]\nuse = \"cat\"", "train.toml:2:7", "checkpoint, early_stopping"),
        ("[[hooks]]\nuse = \"checkpoint\"\nenable = true", "train.toml:3:1", "did you mean `enabled`?"),
        ("[[hooks]]\nuse = \"checkpoint\"\non_error = \"wern\"", "train.toml:3:12", "did you mean `warn`?"),
        ("[[hooks]]\nuse = \"checkpoint\"\nsave_top_k = 3", "train.toml:3:14", "needs a `monitor`"),
        ("[[hooks]]\nuse = \"checkpoint\"\nsave_last = 3", "train.toml:3:13", "true, false or \"link\""),
        ("[trainer]\nmax_epochs = = 3", "train.toml:2:14", "2 | max_epochs = = 3"),
        ("[trainer]\nseed = 99999999999999999999", "train.toml:2:8", "64 bits"),
    ] {
        let shown = error(file, &[], &[]);
        assert!(shown.starts_with("1 problem in train.toml\n"), "{file}\n{shown}");
        assert!(shown.contains(&format!("\n{place}: ")) && shown.contains(hint), "{file}\n{shown}");
    }
}

#[test]
fn a_wrong_type_is_reported_with_an_example() {
    let hook = |hook: &str, option: &str| format!("[[hooks]]\nuse = \"{hook}\"\n{option}");
    for (file, said) in [
        (hook("console", "log_every_n_batches = \"x\""), "expected a whole number"),
        (hook("console", "log_every_n_batches = \"x\""), "write a whole number, 1 or more, such as 10"),
        (hook("console", "log_every_n_batches = -1"), "invalid value: `-1`, expected a whole number"),
        (hook("loss_spike", "factor = \"x\""), "write a number, above 0 and below 1, such as 0.5"),
        (hook("jsonl", "path = 3"), "whole number `3`, expected a text"),
        (hook("gradient_monitor", "percentiles = 3"), "write a list of numbers, from 0 to 100"),
        (hook("gradient_monitor", "percentiles = [true]"), "invalid type: `true`, expected a number"),
        (hook("lr_monitor", "frequency = 3"), "write \"step\" or \"epoch\""),
        (hook("lr_monitor", "frequency = {}"), "write \"step\" or \"epoch\""),
        (hook("lr_monitor", "frequency = []"), "write \"step\" or \"epoch\""),
        (hook("checkpoint", "mode = 3\nmonitor = \"val/loss\""), "write \"min\" or \"max\""),
        (hook("checkpoint", "on_error = 3"), "write \"abort\" or \"warn\" or \"disable\""),
        ("[trainer]\nmax_epochs = 1.5".into(), "invalid type: number `1.5`, expected a whole number"),
    ] {
        let shown = error(&file, &[], &[]);
        assert!(shown.starts_with("1 problem in") && shown.contains(said), "{file}\n{shown}");
        for word in ["u64", "i64", "f64", "usize", "sequence", "variant", "map", "path string", "wanted"] {
            assert!(!shown.contains(word), "{word}\n{shown}");
        }
    }
}

#[test]
fn a_duplicate_name_points_at_the_second() {
    let twice =
        "[[hooks]]\nuse = \"checkpoint\"\nname = \"a\"\n[[hooks]]\nuse = \"checkpoint\"\nname = \"a\"";
    let shown = error(twice, &[], &[]);
    assert!(shown.contains("train.toml:6:8: there is a hook named `a` already"), "{shown}");
}

#[test]
fn the_name_of_the_update_that_changes_nothing_is_reserved() {
    let shown = error("[[hooks]]\nuse = \"checkpoint\"\nname = \"identity\"", &[], &[]);
    assert!(shown.contains("train.toml:3:8: `identity` is the name of the update"), "{shown}");
    assert!(shown.contains("give the hook another name"), "{shown}");
}

#[test]
fn the_names_of_module_and_trainer_are_reserved() {
    for name in ["module", "trainer"] {
        let shown = error(&format!("[[hooks]]\nuse = \"checkpoint\"\nname = \"{name}\""), &[], &[]);
        assert!(
            shown.contains(&format!("train.toml:3:8: `{name}` is the name of the {name} itself")),
            "{shown}"
        );
        assert!(shown.contains("give the hook another name"), "{shown}");
    }
}

#[test]
fn a_missing_file_is_named() {
    let sources = Sources::file("nowhere.toml");
    let error = sources.resolve(&tasks(), &Registry::default()).map(|_| ()).expect_err("there is none");
    assert!(error.to_string().starts_with("cannot read nowhere.toml: "), "{error}");
    assert_eq!(error.to_string(), format!("{error:?}"));
}

#[test]
fn without_a_file_the_heading_names_no_file() {
    let sources = Sources { sets: vec!["trainer.max_epochs=x".into()], ..Sources::default() };
    let error = sources.resolve(&tasks(), &Registry::default()).map(|_| ()).expect_err("text");
    assert!(error.to_string().starts_with("1 problem in the configuration\n--set trainer"), "{error}");
    assert_eq!(error.problems()[0].key, "trainer.max_epochs");
}

#[test]
fn problems_found_later_are_shown_in_the_same_way() {
    let registry = Registry::default();
    let resolved = works("[model]\ndropout = 2.0", &[], &[]);
    let tasks = tasks();
    let shown = resolved.program(&tasks, &registry).map(|_| ()).expect_err("impossible").to_string();
    assert!(
        shown.ends_with(":2:11: `dropout` is above 1\n   2 | dropout = 2.0\n     |           ^^^"),
        "{shown}"
    );
    let by_default = resolved.problem_text(&Problem::new("optimizer.lr", "too low").fix("raise it"));
    assert_eq!(by_default, "optimizer.lr: too low; raise it (a default of task `lab`)");
    assert_eq!(resolved.problem_text(&Problem::new("weights.x", "no")), "weights.x: no");

    let file = "[[hooks]]\nuse = \"early_stopping\"\nmonitor = \"val/los\"\nmode = \"min\"";
    let good = works(file, &[], &[]);
    let mut trainer = good.bare_trainer(&registry).expect("a trainer");
    let refused =
        good.program(&tasks, &registry).expect("a program").plan_errors(&mut trainer).expect("a plan");
    let shown = good.problem_text(&good.problem_of(&refused[0], &trainer));
    assert!(shown.contains(":3:11: hook `early_stopping` reads `val/los`"), "{shown}");
    assert!(
        shown.ends_with("| monitor = \"val/los\"\n     |           ^^^^^^^^^ did you mean `val/loss`?"),
        "{shown}"
    );
}

#[test]
fn a_metric_of_unknown_direction_is_shown_at_its_option() {
    for hook in ["early_stopping", "checkpoint"] {
        let file = |monitor: &str| format!("[[hooks]]\nuse = \"{hook}\"\nmonitor = \"{monitor}\"");
        let shown = error(&file("score"), &[], &[]);
        assert!(shown.contains("train.toml:3:11: `mode` must be set for the `monitor` \"score\""), "{shown}");
        let slip = error(&file("val/los"), &[], &[]);
        assert!(slip.contains("did you mean `val/loss`?"), "{slip}");
        works(&file("score"), &[], &["hooks.0.mode=max"]);
        works(&file("val/f1_macro"), &[], &[]);
    }
}

#[test]
fn names_of_other_trainers_get_a_hint() {
    for (file, hint) in [
        ("[trainer]\nprecision = \"16-mixed\"", "not supported: training computes in the element type"),
        ("[trainer]\ndevices = 2", "one process on one device"),
        ("[trainer]\nprofiler = \"simple\"", "it is the hook `profiler`; see `tenter hooks profiler`"),
        ("[trainer]\ndefault_root_dir = \"x\"", "`runs_dir`"),
        ("precision = 16", "not supported: training computes"),
        ("max_epochs = 3", "it belongs in [trainer]: `trainer.max_epochs`"),
        ("seed_everything = 3", "it is `seed`, in [trainer]"),
        ("[[hooks]]\nuse = \"precision\"", "not supported: training computes"),
        ("[trainer]\nstrategy = \"ddp\"", "`Trainer::with_strategy`"),
        ("[trainer]\nlr_finder = true", "there is no tuner"),
        ("lr_finder = true", "there is no tuner"),
        ("devices = 2", "did you mean `device`?"),
        ("[[hooks]]\nuse = \"lr_finder\"", "there is no tuner"),
        ("[[hooks]]\nuse = \"swa\"", "`ema_weights`"),
        ("[[hooks]]\nuse = \"wandb\"", "not supported; `jsonl`, `csv` and `tensorboard`"),
        ("[[hooks]]\nuse = \"lightning.pytorch.callbacks.ModelCheckpoint\"", "it is the hook `checkpoint`"),
        ("[[hooks]]\nuse = \"lightning.pytorch.callbacks.EarlyStopping\"", "did you mean `early_stopping`?"),
        (
            "[[hooks]]\nuse = \"mypackage.hooks.MyCustomHook\"",
            "register its type there with `App::hook_type`",
        ),
        ("[[hooks]]\nuse = \"my_crate::Hook\"", "`tenter new` makes such a program"),
        ("[hooks_config]\nhook_classes = [\"my_crate::Hook\"]", "`tenter new` makes such a program"),
    ] {
        let shown = error(file, &[], &[]);
        assert!(shown.contains(hint) && shown.starts_with("1 problem in "), "{file}: {shown}");
    }
}

#[test]
fn every_problem_of_one_hooks_table_is_reported() {
    let shown = error(
        "[[hooks]]\nuse = \"loss_spike\"\nfactor = 7.0\nmin_lr = -1.0\ncolour = 1\nthreshold = nan\nbudget = \"0%\"",
        &[],
        &[],
    );
    for place in ["train.toml:3:", "train.toml:4:", "train.toml:5:", "train.toml:6:"] {
        assert!(shown.contains(place), "{place}: {shown}");
    }
    // A wrong required option does not hide other errors.
    let shown = error(
        "[[hooks]]\nuse = \"exec\"\non = [\"never\"]\ntimeout = \"never\"\ncolour = 1\nqueue_size = -1",
        &[],
        &[],
    );
    for place in ["train.toml:3:", "train.toml:4:", "train.toml:5:", "train.toml:6:"] {
        assert!(shown.contains(place), "{place}: {shown}");
    }
    // Errors caused by the removal of a wrong value are not reported.
    let shown = error("[[hooks]]\nuse = \"checkpoint\"\nmonitor = 3\nsave_top_k = 3", &[], &[]);
    assert!(shown.starts_with("1 problem in "), "{shown}");
}

#[test]
fn a_configuration_with_many_mistakes_is_read_once() {
    let hook =
        "[[hooks]]\nuse = \"loss_spike\"\nfactor = \"x\"\nmin_lr = []\ncolour = 1\nbudget = \"much\"\n";
    let mut file =
        "[trainer]\nmax_steps = \"x\"\nmax_time = \"soon\"\nval_check_interval = \"soon\"\n".to_owned();
    file += &(0..100).map(|number| format!("key_{number} = {number}\n")).collect::<Vec<_>>().concat();
    file += &hook.repeat(100);
    let begin = std::time::Instant::now();
    let shown = error(&file, &[], &[]);
    let took = begin.elapsed();
    assert!(shown.starts_with("503 problems in train.toml\n"), "{shown}");
    // A tenth of a second is enough; the rest is for slow machines.
    assert!(took < std::time::Duration::from_secs(5), "{took:?}");
}

#[test]
fn a_value_of_several_types_gets_the_message_of_its_decoder() {
    for (file, said) in [
        (
            "[trainer]\nfast_dev_run = \"x\"",
            "invalid type: text \"x\", expected true, false, or a count of batches",
        ),
        ("[trainer]\nlimit_val_batches = -1", "invalid value: `-1`, expected a count of 0 or more"),
        ("[trainer]\nval_check_interval = true", "the validation interval must be a number of batches"),
        (
            "[trainer]\ncheck_val_every_n_epoch = \"never\"",
            "invalid value: \"never\", expected a count, or \"none\"",
        ),
        (
            "[[hooks]]\nuse = \"exec\"\non = [\"on_train_end\"]\ncommand = 3",
            "a command is a string for `sh`, or a list",
        ),
        (
            "[[hooks]]\nuse = \"console\"\nmax_failures = 5000000000",
            "invalid value: `5000000000`, expected a whole",
        ),
    ] {
        let shown = error(file, &[], &[]);
        assert!(shown.starts_with("1 problem in") && shown.contains(said), "{file}\n{shown}");
    }
}

#[test]
fn an_option_that_needs_another_does_not_hide_other_errors() {
    let file = "[[hooks]]\nuse = \"checkpoint\"\nmode = \"max\"\nsave_top_k = -5\ndirpath = \"../x\"\n";
    let shown = error(file, &[], &[]);
    for line in ["3 problems in train.toml", "train.toml:3:8: `mode`", "train.toml:4:14:", "train.toml:5:11:"]
    {
        assert!(shown.contains(line), "{line} is not in:\n{shown}");
    }
}
