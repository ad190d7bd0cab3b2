//! Listing, enabling, disabling, removing and adding hooks, from outside and from inside a hook.

use tenterhook_core::roster::RosterRequest;
use tenterhook_core::{HookExt, HookKind, closure};

use crate::bench::Bench;

#[test]
fn a_disabled_hook_keeps_its_place() {
    let mut bench = Bench::with(&["a", "b", "c"]);
    bench.runner.disable("b").unwrap();
    assert_eq!(bench.receivers(), ["a", "c"]);
    assert!(!bench.is_enabled("b"));
    bench.runner.enable("b").unwrap();
    assert_eq!(bench.receivers(), ["a", "b", "c"]);
}

#[test]
fn a_removed_hook_is_gone() {
    let mut bench = Bench::with(&["a", "b"]);
    bench.runner.remove("a").unwrap();
    assert_eq!(bench.receivers(), ["b"]);
    let error = bench.runner.enable("a").unwrap_err();
    assert_eq!(error.to_string(), "there is no hook named `a`; there are: `b`");
}

#[test]
fn identity_cannot_be_enabled_or_disabled() {
    let mut bench = Bench::with(&["a"]);
    assert_eq!(bench.runner.list().last().map(|hook| hook.name.clone()).as_deref(), Some("identity"));
    let error = bench.runner.disable("identity").unwrap_err();
    assert_eq!(error.to_string(), "there is no hook named `identity`; there are: `a`");
    let error = Bench::new().runner.disable("identity").unwrap_err();
    assert_eq!(error.to_string(), "there is no hook named `identity`; there are: none");
}

#[test]
fn disabling_a_hook_takes_effect_after_the_event() {
    let mut bench = Bench::new();
    let first = bench.actor("first").once(|run_cx| run_cx.hooks().disable("last"));
    bench.add(first);
    for name in ["middle", "last"] {
        let actor = bench.actor(name);
        bench.add(actor);
    }
    assert_eq!(bench.receivers(), ["first", "middle", "last"], "none is skipped");
    assert_eq!(bench.receivers(), ["first", "middle"]);
}

#[test]
fn a_hook_that_disables_or_removes_itself_causes_no_skipped_hook() {
    let mut bench = Bench::new();
    let disables = bench.actor("disables itself").once(|run_cx| run_cx.hooks().disable("disables itself"));
    let removes = bench.actor("removes itself").once(|run_cx| run_cx.hooks().remove("removes itself"));
    bench.add(disables);
    bench.add(removes);
    let last = bench.actor("last");
    bench.add(last);
    assert_eq!(bench.receivers(), ["disables itself", "removes itself", "last"]);
    assert_eq!(bench.receivers(), ["last"]);
    assert_eq!(bench.names(), ["disables itself", "last"]);
}

#[test]
fn a_hook_that_is_added_begins_with_the_next_event() {
    let mut bench = Bench::new();
    let added = bench.actor("added");
    let adds = bench.actor("adds").once(|run_cx| run_cx.hooks().add(added));
    bench.add(adds);
    assert_eq!(bench.receivers(), ["adds"]);
    assert_eq!(bench.receivers(), ["adds", "added"]);
}

#[test]
fn requests_are_applied_in_order() {
    let mut bench = Bench::with(&["b"]);
    let hook = bench.actor("a").once(|run_cx| {
        run_cx.hooks().disable("b");
        run_cx.hooks().enable("b");
        run_cx.hooks().disable("a");
        run_cx.hooks().remove("b");
        assert_eq!(run_cx.hooks().pending().len(), 4);
        assert_eq!(run_cx.hooks().pending()[3], RosterRequest::Remove("b".into()));
    });
    bench.add(hook);
    assert_eq!(bench.receivers(), ["b", "a"]);
    assert!(bench.receivers().is_empty());
    assert_eq!(bench.names(), ["a"]);
    assert!(bench.shared.roster.pending().is_empty());
}

#[test]
fn impossible_changes_are_reported_and_the_others_are_made() {
    let mut bench = Bench::with(&["b"]);
    let twin = bench.actor("b");
    let hook = bench.actor("a").once(|run_cx| {
        run_cx.hooks().disable("c");
        run_cx.hooks().add(twin);
        run_cx.hooks().disable("b");
    });
    bench.add(hook);
    bench.receivers();
    assert_eq!(
        bench.refused(),
        [
            "there is no hook named `c`; there are: `b`, `a`",
            "there is a hook named `b` already; give one of them another name",
        ]
    );
    assert!(bench.refused().is_empty(), "each is reported once");
    assert_eq!(bench.receivers(), ["a"]);
}

#[test]
fn a_hook_sees_the_registered_hooks_without_an_explicit_publish() {
    let mut bench = Bench::new();
    let log = bench.log.clone();
    let hook = bench.actor("a").acting(move |_, run_cx| {
        for hook in run_cx.hooks().list() {
            log.note(format!("sees {} {} {}", hook.name, hook.kind, hook.enabled));
        }
        Ok(tenterhook_core::Decision::CONTINUE)
    });
    bench.add(hook);
    bench.runner.add(tenterhook_core::update::Identity).unwrap();
    assert_eq!(bench.receivers(), ["a", "sees a controller true", "sees identity update true"]);
    bench.runner.disable("identity").unwrap();
    assert_eq!(bench.receivers(), ["a", "sees a controller true", "sees identity update false"]);
    assert_eq!(bench.runner.list()[1].kind, HookKind::Update);
}

#[test]
fn an_observer_cannot_change_training_through_other_hooks() {
    let mut bench = Bench::with(&["steers"]);
    let stops = bench.actor("stops");
    let mut stops = Some(stops);
    let watch = closure::on_train_epoch_start("watch", move |cx| {
        cx.hooks().disable("steers");
        cx.hooks().remove("steers");
        stops.take().into_iter().for_each(|stops| cx.hooks().add(stops));
        cx.hooks().disable("other watch");
    });
    bench.runner.add(watch).unwrap();
    bench.runner.add(closure::on_train_epoch_start("other watch", |_| ())).unwrap();
    bench.receivers();
    assert!(bench.is_enabled("steers") && !bench.names().contains(&"stops".to_owned()));
    assert!(!bench.is_enabled("other watch"), "observers can change observers");
    let refusal = |name: &str| {
        format!(
            "observer `watch` requested a change of controller hook `{name}`, which would change training; \
             make it a controller"
        )
    };
    assert_eq!(bench.refused(), [refusal("steers"), refusal("steers"), refusal("stops")]);
}

#[test]
fn a_hook_is_found_by_name_and_type_also_behind_wrappers() {
    let mut bench = Bench::new();
    let actor = bench.actor("a");
    bench.runner.add(HookExt::once(actor)).unwrap();
    assert!(bench.runner.hook::<crate::bench::Actor>("a").is_some());
    assert!(bench.runner.hook::<crate::bench::Actor>("b").is_none());
}

#[test]
fn a_hook_must_have_a_name() {
    let error = Bench::new().runner.add(closure::on_train_end(" ", |_| ())).unwrap_err();
    assert_eq!(error.to_string(), "a hook must have a name");
}

#[test]
fn an_observer_cannot_disable_a_hook_that_a_steering_hook_reads_from() {
    let mut bench = Bench::new();
    let watch = closure::on_train_epoch_start("watch", |cx| {
        cx.hooks().disable("norms");
        cx.hooks().remove("norms");
        cx.hooks().add(closure::on_train_epoch_start("more norms", |_| ()).writes("norm/total"));
        cx.hooks().disable("other");
    });
    bench.runner.add(watch).unwrap();
    bench.runner.add(closure::on_train_epoch_start("norms", |_| ()).writes("norm/*")).unwrap();
    bench.runner.add(closure::on_train_epoch_start("other", |_| ()).writes("other/*")).unwrap();
    let steers = closure::on_train_epoch_start("steers", |_| tenterhook_core::Decision::CONTINUE);
    bench.runner.add(steers.reads("norm/total")).unwrap();
    bench.receivers();
    assert!(bench.is_enabled("norms") && !bench.is_enabled("other"));
    let refusal = |name: &str| {
        format!(
            "observer `watch` requested a change of hook `{name}`, from which controller hook `steers` reads \
             `norm/total`, which would change training; make it a controller"
        )
    };
    assert_eq!(bench.refused(), [refusal("norms"), refusal("norms"), refusal("more norms")]);
}
