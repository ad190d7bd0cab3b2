//! `tenter hooks`: lists and describes the available hooks.

use std::process::ExitCode;

use serde_json::json;
use tenterhook::registry::{HookDescription, OptionHelp, Registry};

use super::{CommandResult, print_data, print_stdout};
use crate::app::App;
use crate::arguments::Hooks;
use crate::format::plural;

pub(crate) fn run(app: &App, arguments: &Hooks) -> CommandResult {
    let text = match &arguments.name {
        Some(name) if arguments.json => {
            json!({ "hook": app.registry.describe(name)?, "common": Registry::common_options() }).to_string()
        }
        Some(name) => page(&app.registry.describe(name)?),
        None if arguments.json => {
            json!({ "hooks": all(app), "common": Registry::common_options() }).to_string()
        }
        None if arguments.markdown => reference(app),
        None => list(app),
    };
    if arguments.json {
        print_data(&text);
    } else {
        print_stdout(text.trim_end());
    }
    Ok(ExitCode::SUCCESS)
}

fn all(app: &App) -> Vec<HookDescription> {
    app.registry.hooks().filter_map(|listed| app.registry.describe(listed.name).ok()).collect()
}

/// The hook's kind, such as observer, if it is known before the hook is built.
fn kind(hook: &HookDescription) -> String {
    hook.properties.as_ref().map_or(String::new(), |made| made.kind.to_string())
}

fn list(app: &App) -> String {
    let hooks = all(app);
    let width = hooks.iter().map(|hook| hook.name.len()).max().unwrap_or(0);
    let mut lines: Vec<_> = hooks
        .iter()
        .map(|hook| format!("  {:<width$}  {:<10}  {}", hook.name, kind(hook), hook.purpose))
        .collect();
    lines.insert(0, format!("{} available", plural(hooks.len() as u64, "hook")));
    lines.push(String::new());
    lines.push(format!("`{} hooks NAME` shows the options of a hook, with an example.", app.command));
    lines.join("\n")
}

fn page(hook: &HookDescription) -> String {
    let mut lines = vec![format!("{}: {}", hook.name, hook.purpose), String::new()];
    lines.extend(facts(hook));
    lines.push(String::new());
    lines.push(if hook.options.is_empty() { "No options of its own" } else { "Options" }.to_owned());
    lines.extend(hook.options.iter().flat_map(option_lines));
    lines.extend([String::new(), "Common options".to_owned()]);
    lines.extend(Registry::common_options().iter().flat_map(option_lines));
    if let Some(example) = &hook.example {
        lines.extend([String::new(), "Example".to_owned(), String::new()]);
        lines.extend(example.lines().map(|line| format!("  {line}")));
    }
    lines.join("\n")
}

/// Kind, name, place, policy and events of a hook, a line each.
fn facts(hook: &HookDescription) -> Vec<String> {
    let Some(made) = &hook.properties else {
        return vec!["Its kind and events depend on its options; `plan` shows them.".to_owned()];
    };
    let mut facts = vec![
        format!("  kind    {}", made.kind),
        format!("  name    {} unless `name` is set", made.registered_as),
        format!("  place   {}", made.place()),
        format!("  errors  on_error = \"{}\" by default", made.on_error),
        match made.called {
            Some(when) => format!("  called  {when}"),
            None => format!("  events  {}", made.events.join(", ")),
        },
    ];
    if let Some(feature) = hook.feature {
        facts.push(format!("  needs   the cargo feature `{feature}` of `tenterhook`"));
    }
    if !hook.flags.is_empty() {
        facts.push(format!("  flags   {} in [hooks_config]", hook.flags.join(", ")));
    }
    facts
}

fn option_lines(option: &OptionHelp) -> Vec<String> {
    let default = if option.default.is_some() { "default " } else { "" };
    let text = default_text(option, "");
    let mut lines = vec![format!("  {} ({}), {default}{text}", names(option, ""), option.kind)];
    lines.extend(wrapped(&option.about, 92).into_iter().map(|line| format!("      {line}")));
    lines
}

/// The key and its aliases, each in quotation marks.
fn names(option: &OptionHelp, mark: &str) -> String {
    let names = std::iter::once(&option.key).chain(&option.aliases);
    names.map(|name| format!("{mark}{name}{mark}")).collect::<Vec<_>>().join(", also ")
}

/// The default of an option, with values in quotation marks.
fn default_text(option: &OptionHelp, mark: &str) -> String {
    match (&option.default, option.required, &option.example) {
        (Some(default), ..) => format!("{mark}{default}{mark}"),
        (None, true, _) => "required".to_owned(),
        (None, false, Some(example)) => format!("unset, e.g. {mark}{example}{mark}"),
        (None, false, None) => "unset".to_owned(),
    }
}

/// Wraps text to a width.
fn wrapped(text: &str, width: usize) -> Vec<String> {
    let mut lines = vec![String::new()];
    for word in text.split_whitespace() {
        let last = lines.last().map_or(0, |line| line.chars().count());
        if last > 0 && last + 1 + word.chars().count() > width {
            lines.push(String::new());
        }
        if let Some(line) = lines.last_mut() {
            if !line.is_empty() {
                line.push(' ');
            }
            line.push_str(word);
        }
    }
    lines.retain(|line| !line.is_empty());
    lines
}

/// The reference page, in Markdown.
fn reference(app: &App) -> String {
    let hooks = all(app);
    let mut lines = vec![
        "# The built-in hooks".to_owned(),
        String::new(),
        "Generated by `tenter hooks --markdown` from the registry of the program; a test compares them."
            .to_owned(),
        String::new(),
        "| hook | kind | purpose |".to_owned(),
        "|---|---|---|".to_owned(),
    ];
    lines.extend(
        hooks
            .iter()
            .map(|hook| format!("| [`{0}`](#{0}) | {1} | {2} |", hook.name, kind(hook), hook.purpose)),
    );
    lines.extend([String::new(), "## Common options".to_owned(), String::new()]);
    lines.extend(table(&Registry::common_options()));
    for hook in &hooks {
        lines.extend([String::new(), format!("## {}", hook.name), String::new()]);
        let mut purpose = hook.purpose.chars();
        let first = purpose.next().map(|first| first.to_uppercase().to_string()).unwrap_or_default();
        lines.push(format!("{first}{}.", purpose.as_str()));
        if let Some(made) = &hook.properties {
            let events: Vec<_> = made.events.iter().map(|event| format!("`{event}`")).collect();
            let called = match made.called {
                Some(when) => format!("Called: {when}"),
                None => format!("Events: {}", events.join(", ")),
            };
            lines.extend([
                String::new(),
                format!(
                    "Kind: {}. Name: `{}`. Place: {}. Errors: `{}`. {called}.",
                    made.kind,
                    made.registered_as,
                    made.place(),
                    made.on_error,
                ),
            ]);
        }
        if let Some(feature) = hook.feature {
            let needs =
                format!("In your own program it needs the cargo feature `{feature}` of `tenterhook`.");
            lines.extend([String::new(), needs]);
        }
        if !hook.flags.is_empty() {
            let flags: Vec<_> = hook.flags.iter().map(|flag| format!("`{flag}`")).collect();
            lines.extend([String::new(), format!("In `[hooks_config]`: {}.", flags.join(", "))]);
        }
        if !hook.options.is_empty() {
            lines.push(String::new());
            lines.extend(table(&hook.options));
        }
        if let Some(example) = &hook.example {
            lines.extend([String::new(), "```toml".to_owned()]);
            lines.extend(example.lines().map(str::to_owned));
            lines.push("```".to_owned());
        }
    }
    lines.join("\n")
}

fn table(options: &[OptionHelp]) -> Vec<String> {
    let cell = |text: &str| text.replace('|', "\\|");
    let mut lines = vec!["| key | type | default | meaning |".to_owned(), "|---|---|---|---|".to_owned()];
    lines.extend(options.iter().map(|option| {
        let (names, default) = (names(option, "`"), default_text(option, "`"));
        format!("| {names} | {} | {} | {} |", cell(&option.kind), cell(&default), cell(&option.about))
    }));
    lines
}
