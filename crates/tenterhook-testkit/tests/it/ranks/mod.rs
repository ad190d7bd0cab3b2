//! Training on several ranks, which are threads: every collective of the loop is needed.

mod decisions;
mod failing;
mod start;
mod training;

use std::sync::{Arc, Mutex};

use tenterhook::toy::{Toy, ToyData};
use tenterhook::{BoxError, Report, Settings, Strategy, Trainer, World};
use tenterhook_testkit::ranks::{ThreadRank, on_threads};

/// Two epochs of eight batches, each with a validation.
fn settings() -> Settings {
    Settings {
        max_epochs: Some(2),
        num_sanity_val_steps: 0,
        background_saves: false,
        log_every_n_steps: 1,
        ..Settings::default()
    }
}

fn trainer(settings: Settings) -> Trainer {
    Trainer::new(settings).unwrap().with_notices(|_| {}).without_run_header()
}

/// The result of a `fit` on one rank.
#[derive(Debug)]
struct Ended {
    bits: Vec<u32>,
    result: Result<Report, String>,
}

impl Ended {
    fn report(&self) -> &Report {
        self.result.as_ref().unwrap()
    }

    fn error(&self) -> &str {
        self.result.as_ref().unwrap_err()
    }

    fn metric(&self, name: &str) -> u64 {
        self.report().metrics[name].to_bits()
    }
}

/// A `fit` of the toy with this trainer.
fn fit(mut trainer: Trainer, mut toy: Toy) -> Ended {
    let result = trainer.fit(&mut toy, &mut ToyData::default()).map_err(|error| error.to_string());
    let bits = toy.param("weight").iter().chain(toy.param("bias")).map(|value| value.to_bits()).collect();
    Ended { bits, result }
}

/// A `fit` on several ranks, optionally without the collective of one call site.
fn fit_on(
    ranks: usize,
    skipped: Option<&'static str>,
    make: impl Fn(usize) -> (Trainer, Toy) + Sync,
) -> Vec<Ended> {
    on_threads(ranks, |rank| {
        let (trainer, toy) = make(rank.world().rank);
        fit(trainer.with_strategy(SkipsCollective { rank, site: skipped.unwrap_or_default() }), toy)
    })
}

/// Whether all ranks succeeded with equal results.
fn alike(ended: &[Ended]) -> bool {
    let of = |ended: &Ended| {
        let report = ended.result.as_ref().ok()?;
        Some((ended.bits.clone(), report.progress, report.outcome.clone(), format!("{:?}", report.metrics)))
    };
    of(&ended[0]).is_some() && ended.iter().all(|other| of(other) == of(&ended[0]))
}

/// A strategy without the collective of one call site.
struct SkipsCollective {
    rank: ThreadRank,
    site: &'static str,
}

impl Strategy for SkipsCollective {
    fn world(&self) -> World {
        self.rank.world()
    }
    fn sum_f32(&mut self, site: &str, values: &mut [f32]) -> Result<(), BoxError> {
        if site == self.site { Ok(()) } else { self.rank.sum_f32(site, values) }
    }
    fn sum_f64(&mut self, site: &str, values: &mut [f64]) -> Result<(), BoxError> {
        if site == self.site {
            for value in values {
                *value *= self.rank.world().size as f64;
            }
            return Ok(());
        }
        self.rank.sum_f64(site, values)
    }
    fn gather(&mut self, site: &str, message: Vec<u8>) -> Result<Vec<Vec<u8>>, BoxError> {
        if site == self.site {
            return Ok(vec![message; self.rank.world().size]);
        }
        self.rank.gather(site, message)
    }
    fn broadcast(&mut self, site: &str, message: Vec<u8>) -> Result<Vec<u8>, BoxError> {
        self.rank.broadcast(site, message)
    }
    fn wait(&mut self, site: &str) -> Result<(), BoxError> {
        self.rank.wait(site)
    }
    fn abort(&mut self, reason: &str) {
        self.rank.abort(reason);
    }
}

/// The values that hooks recorded on each rank.
#[derive(Clone, Default)]
struct SharedVec<T>(Arc<Mutex<Vec<Vec<T>>>>);

impl<T: Clone> SharedVec<T> {
    fn on(ranks: usize) -> SharedVec<T> {
        SharedVec(Arc::new(Mutex::new(vec![Vec::new(); ranks])))
    }

    fn push(&self, rank: usize, seen: T) {
        self.0.lock().unwrap()[rank].push(seen);
    }

    fn all(&self) -> Vec<Vec<T>> {
        self.0.lock().unwrap().clone()
    }
}
