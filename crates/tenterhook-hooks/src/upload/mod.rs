//! Uploads checkpoints to storage elsewhere.
//!
//! An upload copies one checkpoint, never two halves: the manifest is read first, each file is compared with it while it is sent, and
//! a file that differs starts the copy anew. At the destination the old manifest is removed first and the new one written last. The
//! hook has no state: comparing manifests tells what is missing.

mod copy;
mod destination;
mod options;
mod source;
#[cfg(test)]
mod tests;
mod words;
mod work;

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use tenterhook_core::{
    CheckpointLoaded, CheckpointSaved, DeliveryStats, Effect, EffectPermit, FromOptions, HookResult,
    HookSpec, Observer, OptionError, RunContext, Setup, Stage, hook,
};

use destination::{Destination, Variables};
use options::Checked;
pub use options::{UploadOnly, UploadOptions};
use work::{Item, Uploader};

use crate::worker::Outbox;

/// Uploads every checkpoint, once it is durable, to storage that speaks S3 or to another directory.
///
/// - **Fires** at `on_checkpoint_saved`, the one that is written on a signal or after a failure included, and at
///   `on_checkpoint_loaded`, when a run goes on: then it uploads what is on the disk and not yet there, unless only
///   the `best` are wanted. Not in a dry run, nor in a rehearsal.
/// - **Reads** the files of the checkpoint, each held against the manifest while it is uploaded. **Writes** them as
///   `<to>/<run id>/<checkpoint>/<file>`, `manifest.json` last: what has a manifest there is whole. Large files go
///   in parts. One that was removed or replaced on the disk before its turn is counted as dropped. Nothing is
///   removed there but what a checkpoint of the same name replaces.
/// - Credentials and the rest come from the usual environment variables: `AWS_ACCESS_KEY_ID`,
///   `AWS_SECRET_ACCESS_KEY`, `AWS_SESSION_TOKEN`, `AWS_REGION`, `AWS_ENDPOINT_URL` (with `AWS_ALLOW_HTTP=true`
///   where it is not encrypted and another machine), or from the machine's role. They are written down nowhere.
/// - **Cost**: a path is handed to a thread of its own, which reads, hashes and sends; up to four parts of 8 MiB in
///   memory, more for files beyond 70 GiB. At the end the run waits for the rest, `flush_timeout` at most.
/// - **Refused before step 1** if the directory cannot be made or written to, or if the environment has half of the
///   credentials. Whether they are right, only the first upload shows.
/// - **When it fails**, after `retries`, its policy decides: it is reported, and the hook disabled after three
///   failures.
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
    outbox: Outbox<Item>,
    gone: Arc<AtomicU64>,
    /// How many of those people have been told about.
    told: u64,
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
        Ok(Upload { options, checked, outbox: Outbox::default(), gone: Arc::default(), told: 0 })
    }
}

impl Upload {
    /// Hands something over to the worker, which starts with the first.
    fn send(&mut self, cx: &RunContext<'_>, root: PathBuf, checkpoint: Option<PathBuf>) -> HookResult {
        let Some(outside) = cx.run.effect_permit().filter(|_| cx.stage == Stage::Fit) else { return Ok(()) };
        if !self.outbox.is_open() {
            let uploader = self.uploader(cx, outside)?;
            self.outbox.open("upload", self.checked.queue, uploader)?;
        }
        self.outbox.pass(Item { run: cx.run.id.clone(), root, checkpoint })
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
        (self.gone, self.told) = (Arc::default(), 0);
        Ok(Uploader {
            outside,
            destination,
            to: self.options.to.clone(),
            patience: self.checked.patience,
            variables: variables(),
            gone: Arc::clone(&self.gone),
            open: None,
        })
    }

    /// Says which did not wait for their turn.
    fn tell(&mut self, cx: &RunContext<'_>) {
        let gone = self.gone.load(Ordering::Relaxed);
        if gone > self.told {
            let which = match gone - self.told {
                1 => "a checkpoint was".to_owned(),
                several => format!("{several} checkpoints were"),
            };
            cx.say(format!(
                "{which} removed or replaced before the upload; keep more of them with `save_top_k`, or save less \
                 often"
            ));
            self.told = gone;
        }
    }
}

/// The environment, as far as it is text.
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
        self.checked.destination.lack(&variables()).into_iter().fold(spec, HookSpec::environment_problem)
    }

    fn setup(&mut self, _: &Setup) -> HookResult {
        self.outbox.begin();
        Ok(())
    }

    fn on_checkpoint_loaded(&mut self, cx: &CheckpointLoaded) -> HookResult {
        // A run that begins from another one's checkpoint has none of its own.
        let own = cx.path.starts_with(&cx.run.checkpoints);
        if !own || self.options.only == UploadOnly::Best {
            return Ok(());
        }
        self.send(cx, cx.run.checkpoints.clone(), None)
    }

    fn on_checkpoint_saved(&mut self, cx: &CheckpointSaved) -> HookResult {
        self.tell(cx);
        if self.options.only == UploadOnly::Best && cx.best_score.is_none() {
            return Ok(());
        }
        self.send(cx, cx.root.to_owned(), Some(cx.path.to_owned()))
    }

    fn finish(&mut self) -> HookResult {
        self.outbox.finish()
    }

    fn delivery_stats(&self) -> Option<DeliveryStats> {
        let mut sent = self.outbox.delivery_stats()?;
        // The worker takes them for delivered; nobody did.
        let gone = self.gone.load(Ordering::Relaxed).min(sent.delivered);
        (sent.delivered, sent.dropped) = (sent.delivered - gone, sent.dropped + gone);
        Some(sent)
    }
}
