//! A file that a worker writes, as the training thread knows it: nothing of it is opened or read there.

use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

use tenterhook_core::{HookResult, Moment, Sent, Stage};
use tenterhook_files::RelPath;

use crate::bookmark::{Bookmark, Keep};
use crate::own_file::{self, Base};
use crate::worker::{Outbox, Queue, Work};

/// What a worker needs to know to open its file.
pub(crate) struct Opening {
    pub(crate) path: PathBuf,
    pub(crate) keep: Keep,
    /// Where it tells how many entries stay.
    pub(crate) found: Arc<OnceLock<u64>>,
}

/// The file, its worker, and how much was handed over.
#[derive(Debug)]
pub(crate) struct Trail<T> {
    outbox: Outbox<T>,
    /// The path of the configuration, by which a checkpoint names the file.
    configured: PathBuf,
    /// The file as a checkpoint knew it, until it is opened.
    known: Option<Bookmark>,
    /// What is there is of a first attempt of this run, until the file is opened.
    anew: Option<RelPath>,
    current: Option<Current>,
}

#[derive(Clone, Debug)]
struct Current {
    path: PathBuf,
    name: RelPath,
    found: Arc<OnceLock<u64>>,
    sent: u64,
    time: f64,
}

impl<T: Send + 'static> Trail<T> {
    /// A file of what is configured under this path.
    pub(crate) fn new(configured: &Path) -> Trail<T> {
        let configured = configured.to_owned();
        Trail { outbox: Outbox::default(), configured, known: None, anew: None, current: None }
    }

    /// At `setup`: what became of the last call's entries has been told.
    pub(crate) fn begin_call(&mut self) {
        self.outbox.begin();
    }

    /// At `on_train_start`, with the place where nobody else writes, if it is one. A run that begins in its own
    /// directory finds nothing there but what it wrote itself, before it was killed without a checkpoint to go on from.
    pub(crate) fn begin(&mut self, moment: &Moment<'_>, own: Option<PathBuf>) -> HookResult {
        let base = Base::of(moment.run, &self.configured)?;
        let own = own.filter(|_| moment.total_batches == 0 && !self.goes_on());
        self.anew = own.map(|own| base.name(&own)).transpose()?;
        Ok(())
    }

    /// Whether there is a file already to go on with.
    pub(crate) fn goes_on(&self) -> bool {
        self.known.is_some() || self.current.is_some()
    }

    /// Whether a checkpoint knew a file that is not opened again yet.
    pub(crate) fn takes_up(&self) -> bool {
        self.known.is_some()
    }

    /// The file in this directory that it goes on with.
    pub(crate) fn path_in(&self, moment: &Moment<'_>, directory: &Path) -> HookResult<Option<PathBuf>> {
        let base = Base::of(moment.run, &self.configured)?;
        let current = || self.current.as_ref().map(|current| current.path.clone());
        let known = self.known.as_ref().map(|known| base.place(&known.path));
        Ok(known.or_else(current).filter(|path| path.parent() == Some(directory)))
    }

    pub(crate) fn is_open(&self) -> bool {
        self.outbox.is_open()
    }

    /// Starts the worker of this file.
    pub(crate) fn open<W: Work<Item = T>>(
        &mut self,
        moment: &Moment<'_>,
        queue: Queue,
        path: PathBuf,
        work: impl FnOnce(Opening) -> W,
    ) -> HookResult {
        let path = own_file::without_links(moment.run, path)?;
        let name = Base::of(moment.run, &self.configured)?.name(&path)?;
        let known = self.known.clone().filter(|known| known.path == name);
        // An evaluation of an older checkpoint must not cut off what came after it.
        let keep = match &known {
            Some(known) if moment.stage == Stage::Fit => Keep::until(known),
            None if self.anew.is_some() => Keep::Nothing,
            _ => Keep::All,
        };
        let same = self.current.clone().filter(|current| current.path == path && known.is_none());
        let current = same.unwrap_or_else(|| {
            let found = match keep {
                Keep::Nothing => Some(0),
                Keep::Until { before, .. } => Some(before),
                Keep::All => None,
            };
            let (sent, time) =
                known.filter(|_| found.is_some()).map_or((0, 0.0), |known| (known.sent, known.time));
            let found = Arc::new(found.map_or_else(OnceLock::new, OnceLock::from));
            Current { path: path.clone(), name, found, sent, time }
        });
        let opening = Opening { path, keep, found: Arc::clone(&current.found) };
        self.outbox.open(&moment.hook_name(), queue, work(opening))?;
        (self.current, self.known, self.anew) = (Some(current), None, None);
        Ok(())
    }

    /// Hands an entry over, if it is open.
    pub(crate) fn send(&mut self, time: f64, entry: T) -> HookResult {
        let Some(current) = self.current.as_mut().filter(|_| self.outbox.is_open()) else { return Ok(()) };
        current.sent += 1;
        current.time = time;
        self.outbox.pass(entry)
    }

    /// Hands over what is no entry: the order to open the file, so that what does not stay is gone even if nothing
    /// follows.
    pub(crate) fn order(&mut self, order: T) -> HookResult {
        self.outbox.pass(order)
    }

    pub(crate) fn finish(&mut self) -> HookResult {
        self.outbox.finish()
    }

    pub(crate) fn sent(&self) -> Option<Sent> {
        self.outbox.sent()
    }

    /// For a checkpoint.
    pub(crate) fn mark(&self) -> Option<Bookmark> {
        let of = |Current { name, found, sent, time, .. }: &Current| Bookmark {
            path: name.clone(),
            before: found.get().copied(),
            sent: *sent,
            time: *time,
        };
        // Nothing was handed over yet, and whoever goes on from here keeps nothing.
        let none = |path: &RelPath| Bookmark { path: path.clone(), before: Some(0), sent: 0, time: 0.0 };
        let current = self.current.as_ref().map(of);
        current.or_else(|| self.known.clone()).or_else(|| self.anew.as_ref().map(none))
    }

    /// From a checkpoint.
    pub(crate) fn load(&mut self, known: Option<Bookmark>) {
        *self = Trail { known, ..Trail::new(&self.configured) };
    }
}

/// Whether a file lies in the directory of the run, where nobody else writes.
pub(crate) fn is_own(moment: &Moment<'_>, path: &Path) -> bool {
    let directory = moment.run.directory.as_deref().and_then(|directory| std::path::absolute(directory).ok());
    directory.is_some_and(|directory| path.starts_with(directory))
}
