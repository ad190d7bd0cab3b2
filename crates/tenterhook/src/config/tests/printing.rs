use super::*;

const FILE: &str = "device = \"cpu\"\n[trainer]\nmax_epochs = 3\nmax_time = \"90 min\"\ncheck_val_every_n_epoch = \"none\"\n\
    [model]\nhidden = []\nkind = \"mlp\"\n[model.head]\nbias = true\n[optimizer]\nuse = \"sgd\"\nlr = 1e-3\n\
    [weights]\n\"class one\" = 0.5\n\
    [[schedulers]]\nuse = \"cosine\"\nwarmup = 3\n[[schedulers]]\nuse = \"plateau\"\n\
    [[hooks]]\nuse = \"checkpoint\"\nmonitor = \"val/loss\"\n[[hooks]]\nuse = \"early_stopping\"\nname = \"stop\"\nmonitor = \"m\"\nmode = \"max\"";

#[test]
fn a_printed_configuration_resolves_to_the_same() {
    for file in [FILE, "", "hooks = []", "task = \"toy\""] {
        let resolved = works(file, &[], &["runs_dir=there"]);
        let printed = resolved.to_toml();
        let again = works(&printed, &[], &[]);
        assert_eq!(again.to_toml(), printed);
        assert_eq!((&again.trainer, &again.options), (&resolved.trainer, &resolved.options), "{printed}");
        assert_eq!(
            (&again.task, &again.device, &again.runs_dir),
            (&resolved.task, &resolved.device, &resolved.runs_dir)
        );
        let names = |resolved: &Config| {
            let trainer = resolved.bare_trainer(&Registry::default()).expect("it works");
            trainer.list_hooks().into_iter().map(|hook| (hook.name, hook.enabled)).collect::<Vec<_>>()
        };
        assert_eq!(names(&again), names(&resolved));
    }
}

#[test]
fn every_key_is_printed_with_its_description() {
    let printed = works(FILE, &[], &[]).to_toml();
    for lines in [
        "task = \"lab\"\n",
        "# A remark.\n# note = \"a remark\"\n",
        "\n[trainer]\n# Stop training after this number of epochs; -1 means no limit. Unset: 1000, or no limit if\n# `max_steps` or `max_time` is set.\nmax_epochs = 3\n",
        "\nmax_time = \"90 min\"\n",
        "\ncheck_val_every_n_epoch = \"none\"\n",
        "\n# gradient_clip_algorithm = \"norm\"\n",
        "\n# The network.\n[model]\n# The sizes of the hidden layers.\nhidden = []\n# How much is dropped",
        "\n# The kind of network. One of `cnn`, `mlp`.\nkind = \"mlp\"\n\n# The last layer.\n[model.head]\n",
        "\n[optimizer]\n# One of `sgd`, `adam`.\nuse = \"sgd\"\n# The learning rate.\nlr = 0.001\n# The momentum.\nmomentum = 0.0\n",
        "\n[[schedulers]]\n# Which schedule.\nuse = \"cosine\"\nwarmup = 3\n\n[[schedulers]]\n",
        "\n[weights]\n\"class one\" = 0.5\n",
        "\n# Unique name of the hook in this run. Unset: the hook's default name.\nname = \"stop\"\n",
        "Checks, not epochs.\npatience = 3\n",
        "\n# stopping_threshold = 0.01\n",
        "\n# save_last = \"link\"\n",
        "is an error.\nmode = \"max\"\n",
        "\n# mode = \"min\"\n",
    ] {
        assert!(printed.contains(lines), "no {lines:?} in\n{printed}");
    }
    assert!(printed.lines().all(|line| line.chars().count() <= 100), "{printed}");
    for (key, _) in
        crate::config::schema::Schema::new(&crate::config::schema::schema_of::<crate::Settings>()).keys(None)
    {
        assert!(
            printed.lines().any(|line| line.trim_start_matches("# ").starts_with(&format!("{key} ="))),
            "{key}"
        );
    }
}

#[test]
fn programs_get_json() {
    let json = works(FILE, &[], &[]).to_json();
    assert_eq!(json["trainer"]["max_epochs"], 3);
    assert_eq!(json["optimizer"]["use"], "sgd");
    assert_eq!(json["hooks"][1]["name"], "stop");
    assert_eq!(json["schedulers"][0]["warmup"], 3);
}
