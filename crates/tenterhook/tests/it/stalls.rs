//! Loaders that stall training are reported while it waits. The notice unblocks the loader, so no test waits
//! longer than necessary.

use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tenterhook::data::{Batches, DataLoaders, Dataset, Sample};
use tenterhook::toy::{Toy, ToyBatch};
use tenterhook::{BoxError, Loader, Notice, RunNotice, Settings, Split, TimeSpan, Trainer, closure};

use crate::call_log::SharedVec;
use crate::lab::epochs;
use crate::run_directory::{latest, plan};

/// A limit far above the usual wait, so that a test ends if the notice never arrives.
const NEVER: Duration = Duration::from_mins(1);

/// Blocks a batch until the other end sends.
#[derive(Clone)]
struct Gate(Arc<Mutex<Receiver<()>>>);

impl Gate {
    fn new() -> (Sender<()>, Gate) {
        let (open, gate) = channel();
        (open, Gate(Arc::new(Mutex::new(gate))))
    }

    fn wait(&self) -> Result<(), BoxError> {
        let opened = self.0.lock().unwrap().recv_timeout(NEVER);
        opened.map_err(|_| "nobody told that training waits".into())
    }
}

fn batch() -> ToyBatch {
    ToyBatch::of(vec![([0.1, 0.2], 0.3)])
}

/// A loader that blocks at its second batch or, with `at_once`, when it seeks.
struct Blocking {
    name: &'static str,
    next: u64,
    gate: Gate,
    at_once: bool,
}

impl Blocking {
    fn new(name: &'static str, gate: &Gate) -> Blocking {
        Blocking { name, next: 0, gate: gate.clone(), at_once: false }
    }
}

impl Loader<ToyBatch> for Blocking {
    fn name(&self) -> &str {
        self.name
    }
    fn batches(&self) -> Option<u64> {
        Some(3)
    }
    fn seek(&mut self, _: u64, batch: u64, _: bool) -> Result<(), BoxError> {
        self.next = batch;
        if self.at_once { self.gate.wait() } else { Ok(()) }
    }
    fn next(&mut self) -> Result<Option<ToyBatch>, BoxError> {
        self.next += 1;
        if self.next == 2 && !self.at_once {
            self.gate.wait()?;
        }
        Ok((self.next <= 3).then(batch))
    }
}

/// Samples of which the second is blocked.
struct Slow(Gate);

impl Dataset for Slow {
    type Item = ();
    fn len(&self) -> usize {
        3
    }
    fn load(&self, sample: Sample) -> Result<(), BoxError> {
        if sample.index == 1 { self.0.wait() } else { Ok(()) }
    }
}

fn other(name: &'static str) -> Batches<ToyBatch> {
    Batches::new(name, vec![(); 2], |_| Ok(batch())).size(1)
}

type Told = (String, bool);

/// The stall notices of a training run on this data, which unblocks after the n-th notice.
fn told_of(
    data: impl FnOnce(Gate) -> DataLoaders<ToyBatch>,
    times: usize,
) -> (Vec<Told>, Vec<Told>, tempfile::TempDir) {
    let (root, told, (open, gate)) = (tempfile::tempdir().unwrap(), SharedVec::new(), Gate::new());
    let settings = Settings { stall_warning: TimeSpan(Duration::from_millis(20)), ..epochs(1) };
    let (tell, mut stalls) = (told.clone(), 0);
    let mut trainer =
        Trainer::new(settings).unwrap().with_run_directory(plan(root.path())).with_notices(move |notice| {
            let RunNotice::Stalled { loader, over, .. } = notice else { return };
            tell.push((loader.clone(), *over));
            stalls += usize::from(!over);
            if stalls == times {
                let _ = open.send(());
            }
        });
    let heard = SharedVec::new();
    let keep = heard.clone();
    let hear = move |cx: &Notice<'_>| {
        if cx.kind == "stall" {
            assert!(cx.shown);
            keep.push((cx.entry["loader"].as_str().unwrap().to_owned(), cx.entry["over"] == true));
        }
    };
    trainer.add_hook(closure::on_notice("hears", hear)).unwrap();
    let report = trainer.fit(&mut Toy::default(), &mut data(gate)).unwrap();
    assert!(report.notices.iter().any(|notice| matches!(notice, RunNotice::Stalled { over: true, .. })));
    let happened = tenterhook::run::Run::read(latest(root.path())).unwrap().event_log().unwrap();
    let written = happened.entries.iter().filter_map(|entry| match &entry.what {
        tenterhook::run::JournalEvent::Stall { loader, seconds, over } => {
            assert!(*seconds >= 0.02, "{seconds}");
            Some((loader.clone(), *over))
        }
        _ => None,
    });
    let told = told.take();
    assert_eq!(heard.take(), told, "hooks receive each, too");
    (told, written.collect(), root)
}

fn expected(loader: &str, times: usize) -> Vec<Told> {
    let waits = std::iter::repeat_n((loader.to_owned(), false), times);
    waits.chain([(loader.to_owned(), true)]).collect()
}

#[test]
fn a_loader_that_blocks_training_is_reported_and_again_when_the_wait_has_doubled() {
    let blocking = |gate: Gate| {
        let data = DataLoaders::new().train(other("quick"));
        data.make(Split::Train, move || Ok(Blocking::new("blocking", &gate)))
    };
    let (told, written, _root) = told_of(blocking, 3);
    assert_eq!(told, expected("blocking", 3));
    assert_eq!(written, told, "the journal has each");
}

#[test]
fn a_loader_whose_threads_do_not_deliver_is_named() {
    let slow =
        |gate| DataLoaders::new().train(Batches::new("slow", Slow(gate), |_| Ok(batch())).size(1).threads(2));
    assert_eq!(told_of(slow, 1).0, expected("slow", 1));
}

#[test]
fn a_loader_that_keeps_a_validation_waiting_is_named() {
    let blocking = |gate: Gate| {
        let data = DataLoaders::new().train(other("quick")).validate(other("also quick"));
        data.make(Split::Validate, move || Ok(Blocking::new("judges", &gate)))
    };
    assert_eq!(told_of(blocking, 1).0, expected("judges", 1));
}

#[test]
fn a_loader_that_cannot_begin_is_named_too() {
    for split in [Split::Train, Split::Validate] {
        let blocking = |gate: Gate| {
            let data = DataLoaders::new().train(other("quick")).validate(other("also quick"));
            data.make(split, move || Ok(Blocking { at_once: true, ..Blocking::new("opens", &gate) }))
        };
        let (told, written, _root) = told_of(blocking, 1);
        assert_eq!((&told, &written), (&expected("opens", 1), &told), "{split:?}");
    }
}

#[test]
fn without_a_stall_warning_nothing_is_reported() {
    let told = SharedVec::new();
    let (tell, settings) = (told.clone(), Settings { stall_warning: TimeSpan(Duration::ZERO), ..epochs(1) });
    let mut trainer = Trainer::new(settings)
        .unwrap()
        .without_run_header()
        .with_notices(move |notice| tell.push(notice.to_string()));
    let pause = |_| {
        std::thread::sleep(Duration::from_millis(20));
        Ok(batch())
    };
    let mut data = DataLoaders::new().train(Batches::new("slow", vec![(); 2], pause).size(1));
    trainer.fit(&mut Toy::default(), &mut data).unwrap();
    assert_eq!(told.take(), Vec::<String>::new());
}

#[test]
fn a_stall_warning_is_written_as_times_are_and_can_be_none() {
    let read = |text: &str| toml::from_str::<Settings>(text).unwrap().stall_warning.0;
    assert_eq!(read(""), Duration::from_mins(1));
    assert_eq!(read("stall_warning = \"5 min\""), Duration::from_mins(5));
    assert_eq!(read("stall_warning = \"0 s\""), Duration::ZERO);
    assert!(toml::from_str::<Settings>("stall_warning = \"0 steps\"").is_err());
}
