//! Paths of files that hooks write.

use std::fs::{File, OpenOptions};
use std::io::{self, ErrorKind};
use std::path::{Component, Path, PathBuf};

use tenterhook_core::{Effect, HookSpec, OptionError, RunInfo};
use tenterhook_files::{RelPath, open_no_follow};

/// The files of the run itself in its directory.
const RUN_FILES: [&str; 7] = [
    "config.toml",
    "events.jsonl",
    "histograms.jsonl",
    "metrics.jsonl",
    "run.json",
    "updates.jsonl",
    "weights.safetensors",
];

/// The directories of the run itself.
const RUN_DIRECTORIES: [&str; 2] = ["checkpoints", "tensorboard"];

/// Refuses a path that names no file, contains `..` or belongs to the run itself.
pub(crate) fn check(key: &str, path: &Path, example: &str) -> Result<(), OptionError> {
    if has_parent_dir(path) {
        return Err(OptionError::new(
            key,
            format!("`{key}` is \"{}\", which leads out of its directory", path.display()),
        )
        .fix(format!("write it without \"..\", such as \"{example}\"")));
    }
    if path.file_name().is_none() {
        return Err(OptionError::new(key, format!("`{key}` must name a file, such as \"{example}\"")));
    }
    let plain = normalized(path);
    if let Some(own) = RUN_DIRECTORIES.iter().find(|own| plain.starts_with(own)) {
        return Err(OptionError::new(
            key,
            format!("`{key}` is \"{}\", and \"{own}\" is a directory of the run itself", path.display()),
        )
        .fix(format!("choose another, such as \"{example}\"")));
    }
    match RUN_FILES.iter().find(|own| plain == Path::new(own)) {
        Some(own) => Err(OptionError::new(key, format!("`{key}` is \"{own}\", a file of the run itself"))
            .fix(format!("choose another, such as \"{example}\""))),
        None => Ok(()),
    }
}

/// Whether the path contains `..`.
pub(crate) fn has_parent_dir(path: &Path) -> bool {
    path.components().any(|part| part == Component::ParentDir)
}

/// The path without `.` components.
pub(crate) fn normalized(path: &Path) -> PathBuf {
    path.components().filter(|part| *part != Component::CurDir).collect()
}

/// The path of a hook's file; `None` if the call writes no files: in a dry run, or in an evaluation without a run
/// directory.
pub(crate) fn resolve(run: &RunInfo, path: &Path) -> io::Result<Option<PathBuf>> {
    let is_missing = run.directory.as_ref().is_some_and(|directory| !directory.exists());
    let file = run.file(path).filter(|_| !(is_missing && path.is_relative()));
    file.map(|file| refuse_links(run, file)).transpose()
}

/// Declares that a hook writes the path in its option `key`: no other hook may write it, and it is an effect if it can be
/// outside of the run directory.
pub(crate) fn declare(spec: HookSpec, key: &str, path: &Path) -> HookSpec {
    let spec = spec.claims(normalized(path).to_string_lossy(), format!("give one of them another `{key}`"));
    Effect::of_writing(path).into_iter().fold(spec, HookSpec::effect)
}

/// The run directory and the path relative to it, if the path is in it. Both may be relative to the working directory.
fn below_run(run: &RunInfo, path: &Path) -> io::Result<Option<(PathBuf, RelPath)>> {
    let Some(directory) = &run.directory else { return Ok(None) };
    let (directory, path) = (std::path::absolute(directory)?, std::path::absolute(path)?);
    if !path.starts_with(&directory) {
        return Ok(None);
    }
    let below = RelPath::of(&path, &directory).ok_or_else(|| without_name(&path))?;
    Ok(Some((directory, below)))
}

/// Whether a path is in the run directory, where only this run writes.
pub(crate) fn is_in_run(run: &RunInfo, path: &Path) -> bool {
    below_run(run, path).is_ok_and(|below| below.is_some())
}

/// Refuses a path through a symbolic link in the run directory, which may be untrusted. Paths outside of it come from the
/// configuration and are trusted.
pub(crate) fn refuse_links(run: &RunInfo, path: PathBuf) -> io::Result<PathBuf> {
    if let Some((directory, below)) = below_run(run, &path)? {
        below.for_opening(&directory)?;
    }
    Ok(path)
}

/// Opens a hook's file for writing. In the run directory only regular files are opened, because a FIFO would block training.
/// Outside of it, the configuration may name a stream such as `/dev/stdout`.
pub(crate) fn open(run: &RunInfo, path: &Path, options: &mut OpenOptions) -> io::Result<File> {
    if is_in_run(run, path) { open_no_follow(path, options) } else { options.open(path) }
}

fn without_name(path: &Path) -> io::Error {
    let text = format!("{} cannot be stored in a checkpoint; choose another path", path.display());
    io::Error::new(ErrorKind::InvalidInput, text)
}

/// The base directory of file paths in checkpoints: the run directory, or the configured directory of the hook's files.
/// Relative paths let a moved or copied run find its own files.
#[derive(Clone, Debug, Default)]
pub(crate) struct OutputRoot(PathBuf);

impl OutputRoot {
    /// The root for the path in the configuration.
    pub(crate) fn of(run: &RunInfo, configured: &Path) -> io::Result<OutputRoot> {
        let path = run.file(configured).unwrap_or_else(|| configured.to_owned());
        let root = match run.files().filter(|files| path.starts_with(files)) {
            Some(files) => files,
            None => path.parent().unwrap_or(&path),
        };
        // A resumed run may have another working directory.
        std::path::absolute(root).map(OutputRoot)
    }

    /// The path for a checkpoint.
    pub(crate) fn name(&self, path: &Path) -> io::Result<RelPath> {
        RelPath::of(path, &self.0).ok_or_else(|| without_name(path))
    }

    /// The file of a path in a checkpoint.
    pub(crate) fn resolve(&self, name: &RelPath) -> PathBuf {
        name.below(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_harmful_path_is_refused_by_its_key() {
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

    #[cfg(unix)]
    #[test]
    fn a_link_in_the_run_is_refused_however_run_and_path_are_given() {
        use std::os::unix::fs::symlink;
        let directory = tempfile::tempdir().expect("a directory");
        let absolute = directory.path().canonicalize().expect("it is there");
        let working = std::env::current_dir().expect("there is one");
        let up: PathBuf = working.components().skip(1).map(|_| "..").collect();
        let relative = up.join(absolute.strip_prefix("/").expect("it is absolute"));
        symlink(&absolute, absolute.join("file")).expect("it is made");
        symlink(&absolute, absolute.join("back\\slash")).expect("it is made");
        for root in [absolute, relative] {
            let run = RunInfo { directory: Some(root.clone()), ..RunInfo::default() };
            let checked = |name: &str| refuse_links(&run, std::path::absolute(root.join(name))?);
            for followed in ["file", "back\\slash/new"] {
                assert!(checked(followed).is_err(), "{followed} in {}", root.display());
            }
            assert!(checked("new").is_ok());
        }
    }
}
