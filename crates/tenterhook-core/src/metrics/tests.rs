use super::*;

fn epoch_of(reduce: Reduce, values: &[(f64, usize)]) -> f64 {
    let metrics = Metrics::default();
    metrics.begin_epoch();
    for (value, size) in values {
        metrics.set_batch_size(*size);
        metrics.log("x", *value, LogOptions::EPOCH.reduce(reduce));
        assert_eq!(metrics.get("x"), None, "not visible before the epoch ends");
    }
    metrics.finish_aggregates();
    metrics.get("x").expect("visible at the end")
}

#[test]
fn an_epoch_is_aggregated_by_the_chosen_reduction() {
    let values = [(1.0, 3), (5.0, 1), (3.0, 4)];
    for (reduce, expected) in [
        (Reduce::Mean, 20.0 / 8.0),
        (Reduce::Sum, 9.0),
        (Reduce::Min, 1.0),
        (Reduce::Max, 5.0),
        (Reduce::Last, 3.0),
    ] {
        assert!((epoch_of(reduce, &values) - expected).abs() < 1e-12, "{reduce:?}");
    }
}

#[test]
fn a_validation_within_an_epoch_does_not_affect_its_aggregates() {
    let metrics = Metrics::default();
    metrics.begin_epoch();
    metrics.log("acc", 1.0, LogOptions::EPOCH);
    metrics.begin_evaluation();
    metrics.log("acc", 0.5, LogOptions::EPOCH);
    metrics.finish_aggregates();
    assert_eq!(metrics.get("acc"), Some(0.5));
    metrics.end_evaluation();
    metrics.log("acc", 0.0, LogOptions::EPOCH);
    metrics.finish_aggregates();
    assert_eq!(metrics.get("acc"), Some(0.5));
    let kept = serde_json::to_value(metrics.state()).expect("it is written");
    assert_eq!(kept["train"]["running"]["acc"]["value"].as_f64().map(f64::to_bits), Some(1f64.to_bits()));
}

#[test]
fn several_loaders_have_a_value_each_and_their_mean() {
    let metrics = Metrics::default();
    metrics.begin_evaluation();
    for (loader, value) in [("a", 1.0), ("b", 2.0)] {
        metrics.set_loader(Some(loader));
        metrics.log("val/loss", value, LogOptions::EPOCH);
    }
    metrics.finish_aggregates();
    let all = metrics.to_map();
    assert_eq!((all["val/loss/a"], all["val/loss/b"], all["val/loss"]), (1.0, 2.0, 1.5));
}

#[test]
fn both_shows_the_step_the_epoch_and_the_latest_of_them() {
    let metrics = Metrics::default();
    metrics.begin_epoch();
    metrics.log("x", 1.0, LogOptions::BOTH);
    metrics.log("x", 3.0, LogOptions::BOTH);
    assert_eq!((metrics.get("x"), metrics.get("x_step")), (Some(3.0), Some(3.0)));
    metrics.finish_aggregates();
    assert_eq!((metrics.get("x"), metrics.get("x_epoch")), (Some(2.0), Some(2.0)));
}

#[test]
fn take_changes_returns_each_change_once() {
    let metrics = Metrics::default();
    assert_eq!(metrics.take_changes(), None);
    metrics.log("a", 1.0, LogOptions::STEP);
    metrics.log("b", 2.0, LogOptions::STEP);
    metrics.log("a", 1.5, LogOptions::STEP);
    let both = BTreeMap::from([("a".to_owned(), 1.5), ("b".to_owned(), 2.0)]);
    assert_eq!(metrics.take_changes(), Some(both));
    assert_eq!(metrics.take_changes(), None);
    metrics.log("b", 2.0, LogOptions::STEP);
    let one = BTreeMap::from([("b".to_owned(), 2.0)]);
    assert_eq!(metrics.take_changes(), Some(one), "an equal value is also a change");
    metrics.log("epoch", 1.0, LogOptions::EPOCH);
    assert_eq!(metrics.take_changes(), None, "not visible before the epoch ends");
    metrics.log("a", 3.0, LogOptions::STEP);
    let later = Metrics::default();
    later.restore(metrics.state());
    let logged = metrics.take_changes();
    assert_eq!(logged, Some(BTreeMap::from([("a".to_owned(), 3.0)])));
    assert_eq!(later.take_changes(), logged, "changes that were not taken survive a resume");
    metrics.restore(metrics.state());
    assert_eq!(metrics.take_changes(), None);
}

#[test]
fn metrics_logged_after_the_last_batch_are_visible_immediately() {
    let metrics = Metrics::default();
    metrics.begin_epoch();
    metrics.finish_aggregates();
    metrics.log("m", 4.0, LogOptions::EPOCH);
    assert_eq!(metrics.get("m"), Some(4.0));
}

#[test]
fn metrics_of_hooks_after_the_last_batch_change_no_other_metric() {
    let metrics = Metrics::default();
    metrics.begin_evaluation();
    metrics.log("val/loss", 0.5, LogOptions::EPOCH);
    metrics.finish_aggregates();
    let logged = || MetricsView::new(&metrics, &(None, None), crate::Phase::Validate, true);
    let start = logged().log_position();
    metrics.log("val/acc", 1.0, LogOptions::EPOCH);
    let closed = logged().log_position();
    assert!(metrics.log_as_hook("val/f1", 0.75, LogOptions::EPOCH).is_ok());
    assert_eq!(logged().since(closed).into_keys().collect::<Vec<_>>(), ["val/f1"]);
    let names: Vec<_> = logged().since_without_hooks(start).into_keys().collect();
    assert_eq!(names, ["val/acc", "val/f1"], "all results of the evaluation, including those of hooks");
}
