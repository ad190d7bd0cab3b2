//! The README and the book under `docs/`: links are valid, configurations load, commands run, and generated
//! pages are up to date. Rust blocks are doc-tests of `tenterhook` and `tenterhook-burn`.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::path::{Component, Path, PathBuf};
use std::process::Command;

use serde_json::Value;
use tenterhook_core::Event;

use crate::tenter::TestDir;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().expect("the repository")
}

fn read(path: &Path) -> String {
    std::fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// All Markdown files below a directory, in order.
fn markdown_below(directory: &Path) -> Vec<PathBuf> {
    let mut pages = Vec::new();
    for entry in std::fs::read_dir(directory).expect("a directory") {
        let path = entry.expect("an entry").path();
        if path.is_dir() {
            pages.extend(markdown_below(&path));
        } else if path.extension().is_some_and(|extension| extension == "md") {
            pages.push(path);
        }
    }
    pages.sort();
    pages
}

/// The pages whose links and blocks are checked: the files in the root of the repository, of the examples and the book.
fn pages() -> Vec<PathBuf> {
    let root = root();
    let top = ["README.md", "ARCHITECTURE.md", "CONTRIBUTING.md", "SECURITY.md", "examples/README.md"];
    let top = top.iter().map(|name| root.join(name));
    top.chain(markdown_below(&root.join("docs"))).collect()
}

/// A fenced block of a page.
struct Block {
    /// The info string of the fence, such as `toml` or `sh,ignore`.
    info: String,
    line: usize,
    text: String,
}

impl Block {
    fn is(&self, language: &str) -> bool {
        self.info == language
    }
}

/// The blocks of a page, and its lines outside of them with their numbers.
fn parse(page: &str) -> (Vec<Block>, Vec<(usize, &str)>) {
    let (mut blocks, mut prose) = (Vec::new(), Vec::new());
    let mut open: Option<Block> = None;
    for (index, line) in page.lines().enumerate() {
        match (&mut open, line.trim_start().strip_prefix("```")) {
            (None, Some(info)) => {
                open = Some(Block { info: info.trim().to_owned(), line: index + 1, text: String::new() });
            }
            (Some(_), Some(_)) => blocks.extend(open.take()),
            (Some(block), None) => {
                block.text.push_str(line);
                block.text.push('\n');
            }
            (None, None) => prose.push((index + 1, line)),
        }
    }
    assert!(open.is_none(), "a block is not closed");
    (blocks, prose)
}

/// The anchor of a heading, as GitHub and mdBook make it.
fn anchor(heading: &str) -> String {
    let kept = heading.trim().chars().filter(|c| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_'));
    kept.collect::<String>().to_lowercase().replace(' ', "-")
}

fn anchors(page: &str) -> BTreeSet<String> {
    let (_, prose) = parse(page);
    let headings = prose.iter().filter(|(_, line)| line.starts_with('#'));
    headings.map(|(_, line)| anchor(line.trim_start_matches('#'))).collect()
}

/// The targets of the Markdown links in a line, without those in code spans.
fn links(line: &str) -> Vec<String> {
    let prose: String = line.split('`').step_by(2).collect::<Vec<_>>().join("`");
    let after = prose.split("](").skip(1);
    after.filter_map(|rest| rest.split_once(')')).map(|(target, _)| target.to_owned()).collect()
}

/// `a/b/../c` as `a/c`.
fn normalized(path: &Path) -> PathBuf {
    let mut parts = PathBuf::new();
    for part in path.components() {
        if part == Component::ParentDir {
            parts.pop();
        } else {
            parts.push(part);
        }
    }
    parts
}

#[test]
fn every_link_leads_to_a_file_and_a_heading() {
    let mut broken = String::new();
    for page in pages() {
        let text = read(&page);
        for (line, content) in parse(&text).1 {
            for link in links(content) {
                if link.starts_with("http") || link.starts_with("mailto:") {
                    continue;
                }
                let (file, heading) = link.split_once('#').unwrap_or((&link, ""));
                let target = match file {
                    "" => page.clone(),
                    file => normalized(&page.with_file_name("").join(file)),
                };
                let found =
                    target.exists() && (heading.is_empty() || anchors(&read(&target)).contains(heading));
                if !found {
                    writeln!(broken, "{}:{line}: {link}", page.display()).expect("a string");
                }
            }
        }
    }
    assert!(broken.is_empty(), "links that lead nowhere:\n{broken}");
}

#[test]
fn the_readme_is_short() {
    let bytes = read(&root().join("README.md")).len();
    assert!(bytes <= 8192, "README.md has {bytes} bytes; details belong into the book");
}

#[test]
fn the_page_about_burn_shows_the_example_as_it_is() {
    let example = read(&root().join("crates/tenterhook-burn/examples/hello_fit.rs"));
    let page = read(&root().join("docs/guide/burn-model.md"));
    assert!(
        page.contains(&format!("```rust,ignore\n{example}```")),
        "copy hello_fit.rs into docs/guide/burn-model.md"
    );
}

#[test]
fn the_summary_lists_every_page_once() {
    let docs = root().join("docs");
    let summary = read(&docs.join("SUMMARY.md"));
    let mut listed: Vec<_> = summary.lines().flat_map(links).map(|link| docs.join(link)).collect();
    listed.push(docs.join("SUMMARY.md"));
    listed.sort();
    assert_eq!(listed, markdown_below(&docs));
}

#[test]
fn every_configuration_loads() {
    let mut refused = String::new();
    let place = TestDir::new();
    for page in pages() {
        for block in parse(&read(&page)).0.iter().filter(|block| block.is("toml")) {
            place.write("block.toml", &block.text);
            let ran = place.run(&["train", "block.toml", "--print-config"]);
            if ran.code != 0 {
                writeln!(refused, "{}:{}: {}", page.display(), block.line, ran.stderr).expect("a string");
            }
        }
    }
    assert!(refused.is_empty(), "{refused}");
}

/// Runs the commands of a page in a new directory, one block after the other, with small training runs. A comment
/// `<!-- run: COMMAND -->` also runs, but readers do not see it.
#[test]
fn every_command_runs() {
    let mut failed = String::new();
    let tenter = Path::new(env!("CARGO_BIN_EXE_tenter")).parent().expect("a directory");
    let path = format!("{}:{}", tenter.display(), std::env::var("PATH").unwrap_or_default());
    for page in pages() {
        let text = read(&page);
        let (blocks, prose) = parse(&text);
        let hidden = prose.iter().filter_map(|(line, content)| {
            let command = content.strip_prefix("<!-- run: ")?.strip_suffix(" -->")?;
            Some((*line, command.to_owned()))
        });
        let shown =
            blocks.iter().filter(|block| block.is("sh")).map(|block| (block.line, block.text.clone()));
        let mut commands: Vec<_> = hidden.chain(shown).collect();
        commands.sort();
        let place = TestDir::new();
        for (line, script) in commands {
            let mut shell = Command::new("sh");
            shell.args(["-e", "-c", &script]).current_dir(place.path()).stdin(std::process::Stdio::null());
            shell
                .env("PATH", &path)
                .env("XDG_CONFIG_HOME", crate::CONFIG_HOME)
                .env("EXAMPLES", root().join("examples"));
            for (key, value) in [
                ("MAX_EPOCHS", "2"),
                ("LIMIT_TRAIN_BATCHES", "4"),
                ("LIMIT_VAL_BATCHES", "2"),
                ("LIMIT_TEST_BATCHES", "2"),
            ] {
                shell.env(format!("TENTER__TRAINER__{key}"), value);
            }
            let output = shell.output().expect("sh runs");
            if !output.status.success() {
                let (out, err) =
                    (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
                writeln!(failed, "{}:{line}: {}\n{out}{err}", page.display(), output.status)
                    .expect("a string");
            }
        }
    }
    assert!(failed.is_empty(), "{failed}");
}

/// Rust blocks are compiled as doc-tests of a crate whose `lib.rs` includes the page.
#[test]
fn every_page_with_rust_is_compiled() {
    let root = root();
    let crates = ["tenterhook", "tenterhook-burn"];
    let sources: String =
        crates.iter().map(|name| read(&root.join("crates").join(name).join("src/lib.rs"))).collect();
    for page in pages() {
        let name = page.strip_prefix(&root).expect("below the root").to_string_lossy().into_owned();
        let has_rust = parse(&read(&page))
            .0
            .iter()
            .any(|block| block.info.starts_with("rust") && !block.info.contains("ignore"));
        let listed = name.strip_prefix("docs/").unwrap_or(&name);
        assert!(
            !has_rust || sources.contains(&format!("\"{listed}\"")) || sources.contains(&format!("{name}\"")),
            "{name} is not compiled"
        );
    }
}

/// Compares a page with its generated text, or writes it if `UPDATE_BOOK` is set.
fn check_generated(page: &str, expected: &str) {
    let path = root().join("docs").join(page);
    if std::env::var_os("UPDATE_BOOK").is_some() {
        std::fs::write(&path, expected).expect("it is written");
    }
    let differs = std::fs::read_to_string(&path).ok().as_deref() != Some(expected);
    assert!(!differs, "docs/{page} is out of date: UPDATE_BOOK=1 cargo test --workspace --test it -- book::");
}

fn printed(arguments: &[&str]) -> String {
    TestDir::new().run(arguments).succeeded().stdout
}

#[test]
fn the_page_of_built_in_hooks_equals_the_printed_one() {
    check_generated("reference/hooks.md", &printed(&["hooks", "--markdown"]));
}

#[test]
fn the_page_of_commands_equals_the_printed_help() {
    let mut page =
        String::from("# Command line\n\nGenerated from `tenter --help`; a test keeps it up to date.\n");
    let help = printed(&["--help"]);
    write!(page, "\n```text\n{}\n```\n", help.trim_end()).expect("a string");
    let commands =
        help.split("Commands:\n").nth(1).expect("commands").lines().take_while(|line| line.starts_with("  "));
    let names = commands
        .filter_map(|line| line.strip_prefix("  ")?.split(' ').next())
        .filter(|name| !name.is_empty());
    for name in names.filter(|name| *name != "help") {
        write!(page, "\n## {name}\n\n```text\n{}\n```\n", printed(&[name, "--help"]).trim_end())
            .expect("a string");
    }
    check_generated("reference/command-line.md", &page);
}

#[test]
fn the_page_of_settings_is_made_from_the_schema() {
    let schema: Value = serde_json::from_str(&printed(&["schema"])).expect("it is JSON");
    let mut page = String::from(
        "# Trainer settings\n\nThe table `[trainer]`, generated from `tenter schema`; a test keeps it up to date. In Rust, they are the fields of \
         `tenterhook::Settings`.\n\n| key | default | meaning |\n|---|---|---|\n",
    );
    let trainer = resolved(&schema, &schema["properties"]["trainer"]);
    for (key, setting) in trainer["properties"].as_object().expect("the settings") {
        let setting = resolved(&schema, setting);
        let default = match &setting["default"] {
            Value::Null => "unset".to_owned(),
            value => format!("`{value}`"),
        };
        let about =
            setting["description"].as_str().unwrap_or_default().replace('\n', " ").replace('|', "\\|");
        assert!(!about.is_empty(), "trainer.{key} has no description");
        writeln!(page, "| `{key}` | {default} | {about} |").expect("a string");
    }
    check_generated("reference/settings.md", &page);
}

/// Resolves the `$ref` of a schema, if there is one, and keeps the keys beside it.
fn resolved(whole: &Value, schema: &Value) -> Value {
    let Some(reference) = schema["$ref"].as_str() else { return schema.clone() };
    let mut target = whole.pointer(reference.trim_start_matches('#')).expect("a definition").clone();
    for (key, value) in schema.as_object().expect("an object").iter().filter(|(key, _)| *key != "$ref") {
        target[key] = value.clone();
    }
    target
}

#[test]
fn the_page_of_events_lists_every_event() {
    let page = read(&root().join("docs/reference/events.md"));
    for event in Event::ALL {
        let row = format!("| `{}` |", event.handler());
        assert_eq!(page.matches(&row).count(), 1, "docs/reference/events.md: {row}");
    }
}

#[test]
fn the_page_of_files_lists_what_a_run_leaves() {
    let place = TestDir::new();
    let sinks = root().join("examples/sinks.toml");
    let few = [
        "--set",
        "trainer.max_epochs=1",
        "--set",
        "trainer.limit_train_batches=2",
        "--set",
        "trainer.trace_updates=true",
    ];
    place.run(&[&["train", sinks.to_str().expect("text")], &few[..]].concat()).succeeded();
    let page = read(&root().join("docs/reference/files.md"));
    for entry in std::fs::read_dir(place.path().join("runs/latest")).expect("the run") {
        let entry = entry.expect("an entry");
        let slash = if entry.path().is_dir() { "/" } else { "" };
        let row = format!("| `{}{slash}` |", entry.file_name().to_string_lossy());
        assert!(page.contains(&row), "docs/reference/files.md: {row}");
    }
}
