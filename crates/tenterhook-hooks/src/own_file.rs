//! Files that a hook writes beside those of the run.

use std::path::{Component, Path, PathBuf};

use tenterhook_core::{Access, Effect, OptionError, RunInfo};

/// What the run itself keeps in its directory.
const OF_THE_RUN: [&str; 7] = [
    "config.toml",
    "events.jsonl",
    "histograms.jsonl",
    "metrics.jsonl",
    "run.json",
    "updates.jsonl",
    "weights.safetensors",
];

/// What it keeps there in directories.
const DIRECTORIES_OF_THE_RUN: [&str; 2] = ["checkpoints", "tensorboard"];

/// Refuses a path that names no file, leaves its directory or is one of the run's own files or lies among them.
pub(crate) fn check(key: &str, path: &Path, example: &str) -> Result<(), OptionError> {
    let refuse = |problem: String| Err(OptionError::new(problem));
    if leads_out(path) {
        return refuse(format!(
            "`{key}` is \"{}\", which leads out of its directory; write it without \"..\", such as \"{example}\"",
            path.display()
        ));
    }
    if path.file_name().is_none() {
        return refuse(format!("`{key}` must name a file, such as \"{example}\""));
    }
    let plain = plain(path);
    if let Some(own) = DIRECTORIES_OF_THE_RUN.iter().find(|own| plain.starts_with(own)) {
        return refuse(format!(
            "`{key}` is \"{}\", and \"{own}\" is a directory of the run itself; choose another, such as \"{example}\"",
            path.display()
        ));
    }
    match OF_THE_RUN.iter().find(|own| plain == Path::new(own)) {
        Some(own) => refuse(format!(
            "`{key}` is \"{own}\", a file of the run itself; choose another, such as \"{example}\""
        )),
        None => Ok(()),
    }
}

/// Whether it climbs out of a directory somewhere.
pub(crate) fn leads_out(path: &Path) -> bool {
    path.components().any(|part| part == Component::ParentDir)
}

/// The same path for all ways to write it: `./a` is `a`.
pub(crate) fn plain(path: &Path) -> PathBuf {
    path.components().filter(|part| *part != Component::CurDir).collect()
}

/// Where a hook's file is, unless the call leaves nothing behind: a dry run, or an evaluation whose run directory
/// nobody makes.
pub(crate) fn place(run: &RunInfo, path: &Path) -> Option<PathBuf> {
    let unmade = run.directory.as_ref().is_some_and(|directory| !directory.exists());
    run.file(path).filter(|_| !(unmade && path.is_relative()))
}

/// Declares that a hook writes this path, which its option `key` names: no other hook may write it, and it is an effect if
/// it can lie outside of the run directory.
pub(crate) fn declared(access: Access, key: &str, path: &Path) -> Access {
    let access = access.claims(plain(path).to_string_lossy(), format!("give one of them another `{key}`"));
    Effect::of_writing(path).into_iter().fold(access, Access::effect)
}

/// The directory that a run's files lie in, by which a checkpoint names them: a run that was moved or copied goes on with
/// its own files and not with those where it was.
#[derive(Clone, Debug, Default)]
pub(crate) struct Base(Option<PathBuf>);

impl Base {
    /// That of this run.
    pub(crate) fn of(run: &RunInfo) -> Base {
        Base(run.files().and_then(|files| std::path::absolute(files).ok()))
    }

    /// As a checkpoint names it.
    pub(crate) fn name(&self, path: &Path) -> PathBuf {
        let below = self.0.as_ref().and_then(|base| path.strip_prefix(base).ok());
        below.unwrap_or(path).to_owned()
    }

    /// Where what a checkpoint named is now.
    pub(crate) fn place(&self, name: &Path) -> PathBuf {
        self.0.as_ref().map_or_else(|| name.to_owned(), |base| base.join(name))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_that_would_do_harm_is_refused_by_its_key() {
        let checked =
            |path: &str| check("path", Path::new(path), "a.json").map_err(|error| error.to_string());
        for fine in ["a.json", "./a.json", "below/a.json", "/tmp/a.json", "below/run.json", "a..b"] {
            assert_eq!(checked(fine), Ok(()), "{fine}");
        }
        for (path, part) in [
            ("", "must name a file"),
            ("/", "must name a file"),
            (".", "must name a file"),
            ("..", "leads out of its directory"),
            ("../a.json", "leads out of its directory"),
            ("below/../../a.json", "leads out of its directory"),
            ("metrics.jsonl", "a file of the run itself"),
            ("./run.json", "a file of the run itself"),
            ("weights.safetensors", "a file of the run itself"),
            ("checkpoints", "a directory of the run itself"),
            ("./tensorboard/a.json", "a directory of the run itself"),
        ] {
            let error = checked(path).expect_err(path);
            assert!(error.starts_with("`path` ") && error.contains(part), "{error}");
            assert!(error.contains("\"a.json\""), "{error}");
        }
    }
}
