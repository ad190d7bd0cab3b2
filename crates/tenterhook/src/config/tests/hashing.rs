//! The hash of a configuration, and secrets.

use super::stubs::{Seen, registry, works_with_stubs};

fn hash(file: &str) -> String {
    works_with_stubs(file, &[], &[]).hash()
}

const FILE: &str = "device = \"cpu\"\n[trainer]\nmax_epochs = 3\nlimit_val_batches = 1\n[model]\nhidden = [8, 4]\n\
    [optimizer]\nuse = \"sgd\"\nlr = 0.5\n[[hooks]]\nuse = \"early_stopping\"\nmonitor = \"val/loss\"\npatience = 5\n\
    [[hooks]]\nuse = \"mycrate::hooks::Seen\"\nthreshold = 1.0\nevery = \"5 min\"";

#[test]
fn the_hash_does_not_depend_on_how_values_are_written() {
    let first = hash(FILE);
    assert!(first.starts_with("blake3:") && first.len() == "blake3:".len() + 64, "{first}");
    let reordered = "# a comment\n[model]\nhidden = [8,  4] # another\n[optimizer]\nlr = 5e-1\nuse = \"sgd\"\n\
        [[hooks]]\npatience = 5\nmonitor = \"val/loss\"\nuse = \"early_stopping\"\n\
        [[hooks]]\nevery = \"5 min\"\nthreshold = 1.0\nuse = \"mycrate::hooks::Seen\"\n\
        [trainer]\nlimit_val_batches = 1\nmax_epochs = 3";
    assert_eq!(hash(reordered), first, "keys in another order, comments, a default left out");
    for (from, to) in [
        ("device = \"cpu\"", "device = \"cpu\"\nruns_dir = \"elsewhere\""),
        ("mycrate::hooks::Seen", "mycrate.hooks.Seen"),
        ("threshold = 1.0", "threshold = 1"),
        ("threshold = 1.0", "threshold = 1.0\nlayers = []\nenabled = true\nonce = false"),
        ("every = \"5 min\"", "every = \"300 s\""),
        ("hidden = [8, 4]", "hidden = [8, 4]\ndropout = 0.1"),
        ("patience = 5", "patience = 5\nmin_delta = 0"),
    ] {
        assert_eq!(hash(&FILE.replace(from, to)), first, "{from} → {to}");
    }
    let layered = FILE.replace("patience = 5", "patience = 9").replace("lr = 0.5", "lr = 0.7");
    let variable = [("TENTER__OPTIMIZER__LR", "0.5")];
    let layered = works_with_stubs(&layered, &variable, &["hooks.early_stopping.patience=5"]);
    assert_eq!(layered.hash(), first, "whichever layer it comes from");
    assert_eq!(hash(&works_with_stubs(FILE, &[], &[]).to_toml()), first, "what is printed is the same");
}

#[test]
fn both_forms_of_hooks_have_one_hash() {
    let tables = "[[hooks]]\nuse = \"mycrate::hooks::Seen\"\nthreshold = 5.0\n\
        [[hooks]]\nuse = \"checkpoint\"\nmonitor = \"val/loss\"\nenabled = false\nevery_n_epochs = 2\n\
        [[hooks]]\nuse = \"lr_monitor\"\nfrequency = \"step\"";
    let flags = "[hooks_config]\nenable_lr_monitor = true\nlr_monitor_config = { frequency = \"step\" }\n\
        enable_model_checkpoint_hook = false\n\
        model_checkpoint_config = { monitor = \"val/loss\", save_every_n_epochs = 2 }\n\
        hook_classes = [\"mycrate.hooks.Seen\"]\nhook_configs.\"mycrate.hooks.Seen\" = { threshold = 5.0 }";
    assert_eq!(hash(flags), hash(tables));
}

#[test]
fn any_other_value_changes_the_hash() {
    let mut hashes = vec![hash(FILE)];
    for (from, to) in [
        ("device = \"cpu\"", "device = \"gpu\""),
        ("device = \"cpu\"", "note = \"x\""),
        ("max_epochs = 3", "max_epochs = 4"),
        ("max_epochs = 3", "max_epochs = 3\nseed = 1"),
        ("limit_val_batches = 1", "limit_val_batches = 1.0"),
        ("[8, 4]", "[4, 8]"),
        ("lr = 0.5", "lr = 0.5000000000000001"),
        ("patience = 5", "patience = 6"),
        ("patience = 5", "patience = 5\nenabled = false"),
        ("patience = 5", "patience = 5\nname = \"stop\""),
        ("patience = 5", "patience = 5\nmin_delta = 1e300"),
        ("threshold = 1.0", "threshold = 1.5"),
        ("threshold = 1.0", "threshold = nan"),
        ("threshold = 1.0", "threshold = 1.0\nlayers = [\"1\"]"),
        ("threshold = 1.0", "threshold = 1.0\nwhen = \"epoch > 1\""),
        ("every = \"5 min\"", "every = \"6 min\""),
        ("every = \"5 min\"", "nested = { user = \"me\" }"),
    ] {
        let changed = FILE.replace(from, to);
        assert_ne!(changed, FILE, "{from}");
        hashes.push(hash(&changed));
    }
    let count = hashes.len();
    hashes.sort();
    hashes.dedup();
    assert_eq!(hashes.len(), count, "all of them differ");
}

const SECRETS: &str = "[[hooks]]\nuse = \"mycrate::hooks::Seen\"\ntoken = \"s3cret\"\n\
    [hooks.nested]\npassword = \"pa55\"\nuser = \"me\"";

#[test]
fn a_secret_is_used_but_never_printed() {
    let resolved = works_with_stubs(SECRETS, &[], &[]);
    let trainer = resolved.bare_trainer(&registry()).expect("a trainer");
    let hook = trainer.hook::<Seen>("seen").expect("it is there");
    assert_eq!(hook.options.token.as_deref(), Some("s3cret"));
    assert_eq!(hook.options.nested.password, "pa55");

    let (printed, json) = (resolved.to_toml(), resolved.to_json().to_string());
    for text in [&printed, &json] {
        assert!(!text.contains("s3cret") && !text.contains("pa55"), "{text}");
        assert!(text.contains("\"me\"") && text.contains("***"), "{text}");
    }
    assert!(
        printed.contains("# token = \"***\"\n") && printed.contains("# password = \"***\"\n"),
        "{printed}"
    );
    let again = works_with_stubs(&printed, &[], &[]);
    assert!(!again.hooks[0].options.contains_key("token"), "a mask is no secret");
    let command = resolved.without_secrets("--set hooks.0.token=s3cret");
    assert_eq!(command, "--set hooks.0.token=***");
}

#[test]
fn a_secret_is_left_out_of_the_hash() {
    let first = hash(SECRETS);
    assert_eq!(hash(&SECRETS.replace("s3cret", "other").replace("pa55", "other")), first);
    assert_eq!(hash(&SECRETS.replace("token = \"s3cret\"\n", "")), first);
    assert_ne!(hash(&SECRETS.replace("\"me\"", "\"you\"")), first);
}

#[test]
fn integers_in_a_list_of_numbers_are_converted() {
    let hash = |percentiles: &str| {
        let file = format!("[[hooks]]\nuse = \"gradient_monitor\"\npercentiles = {percentiles}");
        super::works(&file, &[], &[]).hash()
    };
    assert_eq!(hash("[10, 50]"), hash("[10.0, 50.0]"));
    assert_ne!(hash("[10, 50]"), hash("[10, 51]"));
}
