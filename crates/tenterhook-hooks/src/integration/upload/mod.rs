//! Uploads checkpoints to S3-compatible storage or another directory.
//!
//! An upload never mixes two checkpoints: the manifest is read first, each file is verified against it while it is sent, and a
//! file that differs restarts the copy. At the destination the old manifest is removed first and the new one written last. The
//! hook has no state: comparing manifests shows which uploads are missing.

mod checkpoint_files;
mod copy;
mod destination;
mod error_text;
mod options;
#[cfg(test)]
mod tests;
mod uploader;

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use tenterhook_core::{
    CheckpointLoaded, CheckpointSaved, DeliveryStats, Effect, EffectPermit, FromOptions, HookResult,
    HookSpec, Observer, OptionError, RunContext, Setup, Stage, TrainBatchEnd, TrainStart, hook,
};

use destination::{Destination, Variables};
use options::Checked;
pub use options::{UploadOnly, UploadOptions};
use uploader::{Item, Uploader};

use crate::worker::LazyWorker;

/// Uploads every checkpoint, once it is durable, to S3-compatible storage or another directory.
///
/// - **Fires** at `on_train_start`: it sends one test request, and reports a failure, such as missing credentials or a
///   missing bucket, at the next `on_train_batch_end`. Fires at `on_checkpoint_saved`, also for checkpoints on a signal or
///   after a failure, and at `on_checkpoint_loaded` of a resumed run: it uploads the checkpoints on the disk that the
///   destination lacks, except with `only = "best"`. Not in a dry run or a rehearsal.
/// - **Reads** the files of the checkpoint and verifies them against the manifest. **Writes** them as
///   `<to>/<run id>/<checkpoint>/<file>`, `manifest.json` last, so a checkpoint with a manifest is complete. Large files are
///   sent in parts. A checkpoint that is removed or replaced on the disk before its upload is counted as dropped. Nothing is
///   removed at the destination, except by a checkpoint of the same name.
/// - Credentials and the endpoint come from the usual environment variables: `AWS_ACCESS_KEY_ID`,
///   `AWS_SECRET_ACCESS_KEY`, `AWS_SESSION_TOKEN`, `AWS_REGION`, `AWS_ENDPOINT_URL` (with `AWS_ALLOW_HTTP=true` for
///   unencrypted HTTP to another machine), or from the machine's role. They are stored nowhere.
/// - **Cost**: an atomic load per batch. A worker thread reads, hashes and sends the files. It holds up to four parts of
///   8 MiB in memory, more for files beyond 70 GiB. The end of the run waits for it, up to `flush_timeout`.
/// - **Refused before step 1** if the directory cannot be created or written, or if the environment has only half of the
///   credentials.
/// - **When it fails** after `retries`, the failure is reported, and the hook is disabled after three failures (its policy).
///
/// ```toml
/// [[hooks]]
/// use = "upload"
/// to = "s3://bucket/checkpoints"
/// only = "all"
/// retries = 5
/// timeout = "1 min"
/// queue_size = 1000
/// when_full = "drop_oldest"
/// flush_timeout = "10 min"
/// ```
#[derive(Debug)]
pub struct Upload {
    options: UploadOptions,
    checked: Checked,
    worker: LazyWorker<Item>,
    /// Number of checkpoints that were removed or replaced before their upload.
    dropped: Arc<AtomicU64>,
    /// Number of these checkpoints that were reported.
    reported: u64,
    /// Whether the first request to the destination failed and the failure is not yet reported.
    start_failed: Arc<AtomicBool>,
    environment: fn() -> Variables,
}

impl FromOptions for Upload {
    type Options = UploadOptions;
    const PURPOSE: &str = "uploads checkpoints to S3-compatible storage or another directory";
    const EXAMPLE: &str = r#"
to = "s3://bucket/checkpoints"
only = "best"
"#;

    fn from_options(options: UploadOptions) -> Result<Upload, OptionError> {
        let checked = options.checked()?;
        let (worker, dropped, start_failed) = Default::default();
        Ok(Upload { options, checked, worker, dropped, reported: 0, start_failed, environment: variables })
    }
}

impl Upload {
    /// Starts the worker if this call may upload and it does not run yet.
    fn start(&mut self, cx: &RunContext<'_>) -> HookResult {
        let Some(outside) = cx.run.effect_permit().filter(|_| cx.stage == Stage::Fit) else { return Ok(()) };
        if !self.worker.is_running() {
            let uploader = self.uploader(cx, outside)?;
            self.worker.get_or_start("upload", self.checked.queue, || uploader)?;
        }
        Ok(())
    }

    fn send(&mut self, cx: &RunContext<'_>, root: PathBuf, checkpoint: Option<PathBuf>) -> HookResult {
        self.start(cx)?;
        let sent = self.worker.send(Item { run: cx.run.id.clone(), root, checkpoint });
        if sent.is_err() {
            self.start_failed.store(false, Ordering::Relaxed);
        }
        sent
    }

    fn uploader(&mut self, cx: &RunContext<'_>, outside: EffectPermit) -> HookResult<Uploader> {
        let mut destination = self.checked.destination.clone();
        if let Some(directory) = destination.directory() {
            let (directory, own) =
                (std::path::absolute(directory)?, std::path::absolute(&cx.run.checkpoints)?);
            if directory.starts_with(&own) {
                return Err(format!(
                    "`to` is {}, among the checkpoints themselves; choose another directory",
                    directory.display()
                )
                .into());
            }
            destination = Destination::Directory(directory);
        }
        (self.dropped, self.reported, self.start_failed) = (Arc::default(), 0, Arc::default());
        Ok(Uploader {
            outside,
            run: cx.run.id.clone(),
            destination,
            to: self.options.to.clone(),
            limits: self.checked.limits,
            variables: (self.environment)(),
            dropped: Arc::clone(&self.dropped),
            start_failed: Arc::clone(&self.start_failed),
            connection: None,
        })
    }

    /// Reports checkpoints that were removed or replaced before their upload.
    fn report_dropped(&mut self, cx: &RunContext<'_>) {
        let dropped = self.dropped.load(Ordering::Relaxed);
        if dropped > self.reported {
            let which = match dropped - self.reported {
                1 => "a checkpoint was".to_owned(),
                several => format!("{several} checkpoints were"),
            };
            cx.say(format!(
                "{which} removed or replaced before the upload; keep more of them with `save_top_k`, or save less \
                 often"
            ));
            self.reported = dropped;
        }
    }
}

/// The environment variables that are valid Unicode.
fn variables() -> Variables {
    let text = |(name, value): (std::ffi::OsString, std::ffi::OsString)| {
        Some((name.into_string().ok()?, value.into_string().ok()?))
    };
    std::env::vars_os().filter_map(text).collect()
}

#[hook(name = "upload", tier = "built_in")]
impl Observer for Upload {
    fn declare(&self, spec: HookSpec) -> HookSpec {
        let spec = spec.claims(&*self.options.to, "give one of them another `to`");
        let spec = spec.effect(Effect::Upload(self.options.to.clone()));
        self.checked
            .destination
            .lack(&(self.environment)())
            .into_iter()
            .fold(spec, HookSpec::environment_problem)
    }

    fn setup(&mut self, _: &Setup) -> HookResult {
        self.worker.begin_call();
        Ok(())
    }

    fn on_train_start(&mut self, cx: &TrainStart) -> HookResult {
        self.start(cx)
    }

    fn on_train_batch_end(&mut self, _: &TrainBatchEnd) -> HookResult {
        self.worker.check_flagged(&self.start_failed)
    }

    fn on_checkpoint_loaded(&mut self, cx: &CheckpointLoaded) -> HookResult {
        // A run that starts from another run's checkpoint has no checkpoints yet.
        let own = cx.path.starts_with(&cx.run.checkpoints);
        if !own || self.options.only == UploadOnly::Best {
            return Ok(());
        }
        self.send(cx, cx.run.checkpoints.clone(), None)
    }

    fn on_checkpoint_saved(&mut self, cx: &CheckpointSaved) -> HookResult {
        self.report_dropped(cx);
        if self.options.only == UploadOnly::Best && cx.best_score.is_none() {
            return Ok(());
        }
        self.send(cx, cx.root.to_owned(), Some(cx.path.to_owned()))
    }

    fn finish(&mut self) -> HookResult {
        self.worker.finish()
    }

    fn delivery_stats(&self) -> Option<DeliveryStats> {
        let mut sent = self.worker.delivery_stats()?;
        // The worker counts them as delivered.
        let dropped = self.dropped.load(Ordering::Relaxed).min(sent.delivered);
        (sent.delivered, sent.dropped) = (sent.delivered - dropped, sent.dropped + dropped);
        Some(sent)
    }
}
