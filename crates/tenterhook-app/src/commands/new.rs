//! `tenter new`: creates a small project that builds and trains.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use super::{CommandResult, print_stdout};
use crate::arguments::New;
use crate::error::CommandError;

/// The files of the project, with the placeholders `{name}`, `{dependencies}` and `{dev-dependencies}`.
const FILES: &[(&str, &str)] = &[
    ("Cargo.toml", include_str!("../../template/Cargo.toml.in")),
    (".gitignore", "/target\n/runs\n"),
    ("README.md", include_str!("../../template/README.md")),
    ("train.toml", include_str!("../../template/train.toml")),
    ("src/main.rs", include_str!("../../template/src/main.rs")),
    ("src/spiral.rs", include_str!("../../template/src/spiral.rs")),
    ("src/hook.rs", include_str!("../../template/src/hook.rs")),
];

pub(crate) fn run(arguments: &New) -> CommandResult {
    let directory = &arguments.directory;
    let name = package_name(directory)?;
    if directory.read_dir().is_ok_and(|mut entries| entries.next().is_some()) || directory.is_file() {
        let what = format!("{} already exists and is not empty", directory.display());
        return Err(CommandError::new(what).fix("choose another name"));
    }
    let source = Source::chosen(arguments)?;
    for (path, text) in FILES {
        let text = text
            .replace("{name}", &name)
            .replace("{dependencies}", &source.to_toml(&["tenterhook", "tenterhook-app", "tenterhook-burn"]))
            .replace("{dev-dependencies}", &source.to_toml(&["tenterhook-testkit"]));
        write(&directory.join(path), &text)?;
    }
    let shown = directory.display();
    print_stdout(&format!(
        "created {shown}: a module (src/spiral.rs), a hook with a test (src/hook.rs), a configuration (train.toml)"
    ));
    print_stdout(&format!("it depends on tenterhook {}", source.describe()));
    print_stdout(&format!("next: cd {shown} && cargo run --release -- train train.toml"));
    Ok(ExitCode::SUCCESS)
}

fn write(path: &Path, text: &str) -> Result<(), CommandError> {
    let made = fs::create_dir_all(path.parent().unwrap_or(path));
    made.and_then(|()| fs::write(path, text)).map_err(CommandError::cannot("write", path))
}

/// A package name made from the name of the directory.
fn package_name(directory: &Path) -> Result<String, CommandError> {
    let name = directory.file_name().unwrap_or_default().to_string_lossy().to_lowercase();
    let name: String =
        name.chars().map(|c| if c.is_ascii_alphanumeric() || c == '_' { c } else { '-' }).collect();
    if name.starts_with(|c: char| c.is_ascii_alphabetic()) {
        return Ok(name);
    }
    let fix = format!("give {} a name that starts with a letter", directory.display());
    Err(CommandError::new(format_args!("`{name}` is not a valid project name")).fix(fix))
}

/// The source of the project's dependency on tenterhook.
enum Source {
    Path(PathBuf),
    Git(String),
    Version(String),
}

impl Source {
    /// The source given by an option; otherwise the checkout that this program was built from, if it still exists;
    /// otherwise the version of this program.
    fn chosen(arguments: &New) -> Result<Source, CommandError> {
        let is_checkout = |path: &Path| path.join("crates/tenterhook/Cargo.toml").is_file();
        if let Some(path) = &arguments.path {
            let place = format!("--path {}", path.display());
            if !is_checkout(path) {
                let what = "not a checkout of tenterhook: there is no crates/tenterhook";
                return Err(CommandError::new(what).at(place));
            }
            let path = path.canonicalize().map_err(|error| CommandError::new(error).at(place))?;
            return Ok(Source::Path(path));
        }
        if let Some(url) = &arguments.git {
            return Ok(Source::Git(url.clone()));
        }
        if let Some(version) = &arguments.version {
            return Ok(Source::Version(version.clone()));
        }
        let built_from = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).map(Path::to_path_buf);
        Ok(match built_from.filter(|path| is_checkout(path)) {
            Some(path) => Source::Path(path),
            None => Source::Version(env!("CARGO_PKG_VERSION").to_owned()),
        })
    }

    /// Dependencies on these crates, one line each.
    fn to_toml(&self, crates: &[&str]) -> String {
        let line = |name: &&str| match self {
            Source::Path(path) => {
                let path = path.join("crates").join(name);
                format!("{name} = {{ path = {} }}", toml_string(&path.display().to_string()))
            }
            Source::Git(url) => format!("{name} = {{ git = {} }}", toml_string(url)),
            Source::Version(version) => format!("{name} = {}", toml_string(version)),
        };
        crates.iter().map(line).collect::<Vec<_>>().join("\n")
    }

    fn describe(&self) -> String {
        match self {
            Source::Path(path) => format!("in {} (choose with --path, --git or --version)", path.display()),
            Source::Git(url) => format!("from {url}"),
            Source::Version(version) => format!("version {version}"),
        }
    }
}

fn toml_string(text: &str) -> String {
    format!("\"{}\"", text.replace('\\', "\\\\").replace('"', "\\\""))
}

// Compiles the hook of the template, and runs its tests.
#[cfg(test)]
#[allow(clippy::pedantic, clippy::unwrap_used, missing_docs)]
#[path = "../../template/src/hook.rs"]
mod template_hook;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_becomes_a_name_that_cargo_accepts() {
        assert_eq!(package_name(Path::new("/a/My Model")).expect("it starts with a letter"), "my-model");
        assert!(package_name(Path::new("7up")).is_err());
        assert!(package_name(Path::new("/")).is_err());
    }

    #[test]
    fn dependencies_are_written_for_every_kind_of_source() {
        let crates = ["tenterhook", "tenterhook-burn"];
        let git = Source::Git("https://example.org/t.git".into()).to_toml(&crates);
        assert_eq!(git.lines().count(), 2);
        assert!(git.contains("tenterhook-burn = { git = \"https://example.org/t.git\" }"), "{git}");
        assert!(Source::Version("1.2".into()).to_toml(&crates).starts_with("tenterhook = \"1.2\"\n"));
    }
}
