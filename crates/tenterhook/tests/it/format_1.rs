//! A checkpoint of format 1, as the first versions of this program wrote it, still loads.

use std::path::Path;

use tenterhook::checkpoint::{
    Condition, OnUnreadable, list, newest_whole, read, verify, weights_to_evaluate,
};
use tenterhook::hooks::{Checkpoint, CheckpointOptions, EmaWeights, EmaWeightsOptions};
use tenterhook::toy::Toy;

use crate::lab::{bits, data, epochs, trainer};

/// The root of checkpoints of two finished epochs, kept with the tests. `run` made it, when the format was 1.
fn fixture() -> &'static Path {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fixtures/checkpoint-format-1"))
}

/// Epochs of two batches with an average of the weights and a checkpoint each.
fn run(until: i64, root: &Path, from: Option<&Path>) -> Vec<u32> {
    let mut trainer = trainer(epochs(until)).with_checkpoints_in(root);
    if let Some(from) = from {
        trainer = trainer.restoring(from);
    }
    let average = EmaWeightsOptions { decay: 0.5, warmup: false, ..EmaWeightsOptions::default() };
    trainer.add_hook(EmaWeights::new(average).unwrap()).unwrap();
    let options = CheckpointOptions { save_top_k: Some(-1), ..CheckpointOptions::default() };
    trainer.add_hook(Checkpoint::new(options).unwrap()).unwrap();
    let mut toy = Toy::default();
    trainer.fit(&mut toy, &mut data(2, 1)).unwrap();
    bits(&toy)
}

#[test]
fn it_loads_and_is_whole() {
    let all = list(fixture()).unwrap();
    let names: Vec<_> = all.iter().map(|listed| (listed.name.as_str(), &listed.condition)).collect();
    assert_eq!(names, [("epoch=1-step=4", &Condition::Whole), ("epoch=0-step=2", &Condition::Whole)]);
    let path = fixture().join("epoch=1-step=4");
    assert_eq!(newest_whole(fixture(), OnUnreadable::Stop).unwrap().path.as_ref(), Some(&path));
    let contents = read(&path).unwrap();
    assert_eq!((contents.format, contents.progress.step, contents.weights_only), (1, 4, false));
    assert_ne!(weights_to_evaluate(&path).unwrap(), contents.weights, "the average was evaluated");
}

#[test]
fn training_goes_on_from_it_to_the_same_bits() {
    let (whole, resumed) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let expected = run(4, whole.path(), None);
    for name in ["epoch=0-step=2", "epoch=1-step=4"] {
        assert_eq!(run(4, resumed.path(), Some(&fixture().join(name))), expected, "{name}");
        let weights = |root: &Path| weights_to_evaluate(&root.join("epoch=3-step=8")).unwrap();
        assert_eq!(weights(resumed.path()), weights(whole.path()), "{name}");
    }
}

#[test]
fn what_can_be_seen_of_damage_is() {
    let root = tempfile::tempdir().unwrap();
    let path = root.path().join("a");
    for (file, cut) in [
        ("weights.safetensors", Some(60)),
        ("optimizer.safetensors", Some(9)),
        ("hooks.safetensors", Some(0)),
        ("state.json", Some(100)),
        ("weights.safetensors", None),
        ("optimizer.safetensors", None),
    ] {
        let _ = std::fs::remove_dir_all(&path);
        std::fs::create_dir(&path).unwrap();
        for entry in std::fs::read_dir(fixture().join("epoch=1-step=4")).unwrap() {
            let entry = entry.unwrap();
            std::fs::copy(entry.path(), path.join(entry.file_name())).unwrap();
        }
        verify(&path).expect("as it was");
        match cut {
            Some(length) => std::fs::OpenOptions::new()
                .write(true)
                .open(path.join(file))
                .and_then(|open| open.set_len(length))
                .unwrap(),
            None => std::fs::remove_file(path.join(file)).unwrap(),
        }
        let error = verify(&path).unwrap_err().to_string();
        assert!(error.contains(&format!("a/{file} is damaged: ")), "{error}");
        let newest = newest_whole(root.path(), OnUnreadable::Stop).unwrap();
        assert_eq!((newest.path, newest.skipped), (None, vec![(path.clone(), error)]));
    }
}
