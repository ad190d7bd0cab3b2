//! Requirement: hook registry.

use tenterhook::toy::Toy;
use tenterhook::{HookKind, closure};

use super::{Log, Times, Watch, bits, train, untouched};
use crate::lab::{data, epochs, trainer};

const BOTH_KINDS: &str = r#"
[[hooks]]
use = "document::Watch"
points = "linear.*"
[[hooks]]
use = "document::Times"
factor = 0.5
[[hooks]]
use = "document::Watch"
name = "watch_off"
points = "**"
enabled = false
[[hooks]]
use = "document::Times"
name = "times_off"
factor = 0.0
enabled = false
[[hooks]]
use = "lr_monitor"
"#;

#[test]
fn hook_registry_loads_hooks_from_config() {
    let root = tempfile::tempdir().unwrap();
    let ran = train(root.path(), BOTH_KINDS);
    let mut listed: Vec<_> =
        ran.listed.iter().map(|hook| (hook.name.as_str(), hook.kind, hook.enabled)).collect();
    listed.sort_by_key(|(_, kind, _)| *kind == HookKind::Update);
    assert_eq!(
        listed,
        [
            ("watch", HookKind::Forward, true),
            ("watch_off", HookKind::Forward, false),
            ("lr_monitor", HookKind::Observer, true),
            ("times", HookKind::Update, true),
            ("times_off", HookKind::Update, false),
        ],
        "each according to its type, enabled or not as the configuration says"
    );
    for (name, enabled) in [("watch", true), ("times", true), ("watch_off", false), ("times_off", false)] {
        assert_eq!(ran.done.iter().any(|(hook, _)| hook == name), enabled, "{name}");
    }
    let points = ran.done.iter().filter(|(hook, _)| hook == "watch").map(|(_, point)| point.as_str());
    assert!(points.clone().count() > 0 && points.into_iter().all(|point| point == "linear.product"));
}

#[test]
fn hook_registry_supports_toggling_hooks() {
    let log = Log::new();
    let mut trainer = trainer(epochs(1));
    trainer.add_hook(Watch { points: "prediction".parse().unwrap(), log: log.clone() }).unwrap();
    trainer.add_hook(Times { factor: 0.0, log: log.clone() }).unwrap();
    let names = |trainer: &tenterhook::Trainer| -> Vec<_> {
        trainer.list_hooks().into_iter().map(|hook| (hook.name, hook.enabled)).collect()
    };
    for hook in ["watch", "times"] {
        trainer.disable_hook(hook).unwrap();
    }
    let (watch, times) = (("watch".to_owned(), false), ("times".to_owned(), false));
    let identity = ("identity".to_owned(), true);
    assert_eq!(names(&trainer), [watch, times, identity], "still there; identity stands in for the update");
    let mut toy = Toy::default();
    trainer.fit(&mut toy, &mut data(4, 0)).unwrap();
    assert!(log.take().is_empty(), "what is disabled is not executed");
    assert_eq!(bits(&toy), untouched());

    trainer.enable_hook("watch").unwrap();
    trainer.enable_hook("times").unwrap();
    assert_eq!(names(&trainer), [("watch".to_owned(), true), ("times".to_owned(), true)]);
    // The same during training: the director disables both hooks in steps 2 and 3.
    let director = closure::on_train_batch_start("director", |cx| {
        for hook in ["watch", "times"] {
            match cx.batches {
                2 => cx.hooks().disable(hook),
                4 => cx.hooks().enable(hook),
                _ => {}
            }
        }
        tenterhook::Decision::CONTINUE
    });
    trainer.add_hook(director).unwrap();
    trainer.fit(&mut Toy::default(), &mut data(4, 0)).unwrap();
    let done: Vec<_> = log.take().into_iter().map(|(hook, what)| format!("{hook}: {what}")).collect();
    assert_eq!(done, ["watch: prediction", "times: step 1", "watch: prediction", "times: step 4"]);
}

#[test]
fn hook_registry_executes_hooks_in_order() {
    let tables = |names: [&str; 3]| {
        let one = |name: &&str| {
            format!(
                "[[hooks]]\nuse = \"document::Watch\"\nname = \"watch_{name}\"\npoints = \"prediction\"\n\
                 [[hooks]]\nuse = \"document::Times\"\nname = \"times_{name}\"\nfactor = 1.0\n"
            )
        };
        names.iter().map(one).collect::<String>()
    };
    let executed = |names: [&str; 3]| {
        let root = tempfile::tempdir().unwrap();
        train(root.path(), &tables(names)).done
    };
    for names in [["a", "b", "c"], ["c", "a", "b"]] {
        let done = executed(names);
        for kind in ["watch", "times"] {
            let of_kind: Vec<_> =
                done.iter().filter_map(|(hook, _)| hook.strip_prefix(&format!("{kind}_"))).collect();
            assert!(of_kind.len() >= 12);
            assert!(of_kind.chunks(3).all(|round| round == names), "{kind}: {of_kind:?}");
        }
        assert_eq!(executed(names), done, "the same order every time");
    }
}
