use tenterhook_core::Hook as _;
use tenterhook_testkit::{NamedTensors, Rig};

use super::*;

fn rig(options: LrMonitorOptions) -> Rig<LrMonitor> {
    Rig::new(LrMonitor::new(options))
}

fn group(name: &str, lr: f64) -> ParamGroup {
    ParamGroup { name: name.into(), lr, momentum: None, weight_decay: None }
}

fn logged(rig: &Rig<LrMonitor>) -> Vec<(String, f64)> {
    rig.metrics().to_map().into_iter().collect()
}

fn pairs<const N: usize>(pairs: [(&str, f64); N]) -> Vec<(String, f64)> {
    pairs.map(|(name, value)| (name.to_owned(), value)).to_vec()
}

#[test]
fn every_step_logs_the_optimizer_that_is_about_to_step() {
    let mut rig = rig(LrMonitorOptions::default());
    rig.optimizers([("adam", &[0.1]), ("sgd", &[0.2, 0.3])]);
    rig.on_train_epoch_start();
    assert_eq!(logged(&rig), [], "nothing at the start of an epoch");
    rig.on_before_optimizer_step();
    assert_eq!(logged(&rig), pairs([("lr/adam", 0.1)]), "one group needs no name");
    rig.optimizer(1).on_before_optimizer_step();
    let all = pairs([("lr/adam", 0.1), ("lr/sgd/group 0", 0.2), ("lr/sgd/group 1", 0.3)]);
    assert_eq!(logged(&rig), all);
}

#[test]
fn every_epoch_logs_all_optimizers_at_its_start() {
    let mut rig = rig(LrMonitorOptions { frequency: LrFrequency::Epoch, ..LrMonitorOptions::default() });
    rig.optimizers([("adam", &[0.1]), ("sgd", &[0.2])]);
    rig.on_before_optimizer_step();
    assert_eq!(logged(&rig), [], "nothing at a step");
    rig.on_train_epoch_start();
    assert_eq!(logged(&rig), pairs([("lr/adam", 0.1), ("lr/sgd", 0.2)]));
}

#[test]
fn equal_names_are_numbered() {
    let mut rig = rig(LrMonitorOptions { frequency: LrFrequency::Epoch, ..LrMonitorOptions::default() });
    rig.optimizers([("sgd", &[0.1]), ("sgd", &[0.2]), ("sgd_2", &[0.3]), ("a/b", &[0.4])]);
    let groups = vec![group("b", 0.5), group("c", 0.6), group("c", 0.7)];
    rig.add_optimizer("a", groups, NamedTensors::default());
    rig.on_train_epoch_start();
    let all = [
        ("lr/a/b", 0.4),
        ("lr/a/b_2", 0.5),
        ("lr/a/c", 0.6),
        ("lr/a/c_2", 0.7),
        ("lr/sgd", 0.1),
        ("lr/sgd_2", 0.2),
        ("lr/sgd_2_2", 0.3),
    ];
    assert_eq!(logged(&rig), pairs(all));
}

#[test]
fn momentum_and_weight_decay_are_logged_on_request_if_there_are_any() {
    let with = ParamGroup { momentum: Some(0.9), weight_decay: Some(0.01), ..group("all", 0.2) };
    let run = |log_momentum, log_weight_decay| {
        let mut rig = rig(LrMonitorOptions { log_momentum, log_weight_decay, ..LrMonitorOptions::default() });
        rig.lr(0.1).add_optimizer("sgd", vec![with.clone()], NamedTensors::default());
        rig.on_train_start();
        rig.on_before_optimizer_step();
        rig.optimizer(1).on_before_optimizer_step();
        assert_eq!(rig.said(), [], "somebody has them");
        logged(&rig)
    };
    let rates = [("lr/optimizer", 0.1), ("lr/sgd", 0.2)];
    assert_eq!(run(false, false), pairs(rates));
    assert_eq!(run(true, false), pairs([rates[0], rates[1], ("momentum/sgd", 0.9)]));
    assert_eq!(run(false, true), pairs([rates[0], rates[1], ("weight_decay/sgd", 0.01)]));
}

#[test]
fn values_that_no_optimizer_has_are_reported_once_at_the_start() {
    let options =
        LrMonitorOptions { log_momentum: true, log_weight_decay: true, ..LrMonitorOptions::default() };
    let mut rig = rig(options);
    rig.on_train_start();
    rig.on_before_optimizer_step();
    rig.on_before_optimizer_step();
    let said: Vec<_> = rig.said().into_iter().map(|(_, text)| text).collect();
    assert_eq!(
        said,
        [
            "`log_momentum`: no optimizer has a momentum, so none is logged",
            "`log_weight_decay`: no optimizer has a weight decay, so none is logged",
        ]
    );
    assert_eq!(logged(&rig), pairs([("lr/optimizer", 0.001)]));
}

#[test]
fn a_changed_rate_is_logged_at_the_next_step() {
    let mut rig = rig(LrMonitorOptions::default());
    for lr in [0.5, 0.25] {
        rig.lr(lr).on_before_optimizer_step();
        assert_eq!(rig.metrics().get("lr/optimizer"), Some(lr));
    }
}

#[test]
fn an_unknown_frequency_and_an_unknown_key_are_refused() {
    let read = toml::from_str::<LrMonitorOptions>;
    let error = read("frequency = \"batch\"").expect_err("unknown").to_string();
    assert!(error.contains("`step`") && error.contains("`epoch`"), "{error}");
    assert!(read("log_momentums = true").is_err());
    let epoch = read("frequency = \"epoch\"").expect("it reads");
    assert_eq!(epoch.frequency, LrFrequency::Epoch);
}

#[test]
fn it_wants_the_events_of_its_frequency_and_declares_what_it_writes() {
    let events = |frequency| {
        let options = LrMonitorOptions { frequency, ..LrMonitorOptions::default() };
        let events = tenterhook_core::AnyHook::new(LrMonitor::new(options)).spec().events;
        [Event::BeforeOptimizerStep, Event::TrainEpochStart].map(|event| events.contains(event))
    };
    assert_eq!(events(LrFrequency::Step), [true, false]);
    assert_eq!(events(LrFrequency::Epoch), [false, true]);
    let writes = |options| LrMonitor::new(options).spec().writes;
    assert_eq!(writes(LrMonitorOptions::default()), ["lr/*/**"]);
    let all = LrMonitorOptions { log_momentum: true, log_weight_decay: true, ..LrMonitorOptions::default() };
    assert_eq!(writes(all), ["lr/*/**", "momentum/*/**", "weight_decay/*/**"]);
}
