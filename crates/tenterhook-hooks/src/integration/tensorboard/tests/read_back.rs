//! TensorBoard's own reader reads the written values.

use std::path::Path;

use serde_json::{Value, json};
use tenterhook_core::metrics::Histogram;
use tenterhook_testkit::{NamedTensors, Rig};

use super::{only, rig};
use crate::integration::tensorboard::TensorBoard;
use crate::support::python;

const MODULES: &str = "tensorboard.backend.event_processing.event_accumulator, PIL.Image";

/// Prints everything that the reader finds: numbers as the bits of 32-bit floats, so that NaN is equal to itself.
const READ: &str = r#"
import io, json, struct, sys
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from tensorboard.util import tensor_util
from PIL import Image

def bits(value):
    return struct.unpack("<I", struct.pack("<f", value))[0]

def tensor(kind, event):
    strings = list(tensor_util.make_ndarray(event.tensor_proto))
    if kind == "text":
        return [event.wall_time, event.step, [text.decode() for text in strings]]
    pictures = [Image.open(io.BytesIO(file)) for file in strings[2:]]
    size = [int(strings[0]), int(strings[1])]
    assert all(list(picture.size) == size for picture in pictures)
    return [event.wall_time, event.step, size, [[p.mode, list(p.tobytes())] for p in pictures]]

def histogram(event):
    h = event.histogram_value
    return [event.wall_time, event.step, h.min, h.max, h.num, h.sum, h.sum_squares, list(h.bucket_limit), list(h.bucket)]

reader = EventAccumulator(sys.argv[1], size_guidance=dict.fromkeys(["scalars", "histograms", "tensors"], 0))
reader.Reload()
tags = reader.Tags()
kinds = {tag: reader.SummaryMetadata(tag).plugin_data.plugin_name for tag in tags["tensors"]}
print(json.dumps({
    "scalars": {tag: [[e.wall_time, e.step, bits(e.value)] for e in reader.Scalars(tag)] for tag in tags["scalars"]},
    "histograms": {tag: [histogram(e) for e in reader.Histograms(tag)] for tag in tags["histograms"]},
    "tensors": {tag: [kind, [tensor(kind, e) for e in reader.Tensors(tag)]] for tag, kind in kinds.items()},
}))
"#;

const NOW: f64 = 1_700_000_000.25;

/// Scalars as the script prints them.
fn scalars(values: &[(u64, f64)]) -> Value {
    #[allow(clippy::cast_possible_truncation)]
    let row = |(step, value): &(u64, f64)| json!([NOW, step, (*value as f32).to_bits()]);
    values.iter().map(row).collect()
}

fn histogram(step: u64, Histogram { edges, counts, .. }: &Histogram) -> Value {
    let middles =
        edges.windows(2).zip(counts).map(|(bin, count)| (f64::midpoint(bin[0], bin[1]), *count as f64));
    let sum: f64 = middles.clone().map(|(middle, count)| middle * count).sum();
    let squares: f64 = middles.map(|(middle, count)| middle * middle * count).sum();
    let counts: Vec<_> = counts.iter().map(|count| *count as f64).collect();
    let number: f64 = counts.iter().sum();
    json!([NOW, step, edges[0], edges[edges.len() - 1], number, sum, squares, &edges[1..], counts])
}

#[test]
fn all_numbers_are_read_back_including_non_finite_ones() {
    let Some(python) = python::with(MODULES) else { return };
    let dir = tempfile::tempdir().expect("a directory");
    let mut rig = rig(dir.path(), json!({}));
    let values = [0.1, -0.0, 1e-45, 1e300, f64::NAN, f64::INFINITY, f64::NEG_INFINITY, 16_777_217.0];
    let spread = Histogram::of(&[-3.0, 0.5, 0.25, 7.0, f32::NAN], 5);
    let alone = Histogram::of(&[2.0, 2.0], 5);
    for (step, value) in (1..).zip(values) {
        rig.metric("train/loss", value).metric("a b/ü", step as f64).step(step);
        if step == 2 {
            rig.metric("val/loss", 0.25);
            rig.metrics().log_histogram("grad/w", spread.clone());
            rig.metrics().log_histogram("grad/v", alone.clone());
            // A histogram without finite values.
            rig.metrics().log_histogram("grad/nan", Histogram::of(&[f32::NAN], 5));
        }
        rig.on_log();
    }
    rig.step(1 << 40).metric("late", 1.0).on_log();
    rig.finish();
    let read = python::run(&python, READ, &only(&dir.path().join("tensorboard")));
    let steps: Vec<_> = (1..=8).zip(values).collect();
    let counted: Vec<_> = (1..=8).map(|step| (step, step as f64)).collect();
    let expected = json!({
        "scalars": {
            "train/loss": scalars(&steps),
            "a b/ü": scalars(&counted),
            "val/loss": scalars(&[(2, 0.25)]),
            "late": scalars(&[(1 << 40, 1.0)]),
        },
        "histograms": { "grad/w": [histogram(2, &spread)], "grad/v": [histogram(2, &alone)] },
        "tensors": {},
    });
    assert_eq!(read, expected);
}

fn step(rig: &mut Rig<TensorBoard>, step: u64) {
    rig.step(step - 1).gradients([("fc.weight", [step as f32, 1.0]), ("fc.bias", [0.0, 0.5])]);
    rig.params([("fc.weight", [-1.0, step as f32]), ("fc.bias", [9.0, 9.0])]);
    rig.on_before_optimizer_step();
    let counted = tenterhook_core::Progress { step, step_counted: true, ..Default::default() };
    rig.progress(counted).on_step_end();
    rig.progress(tenterhook_core::Progress { step, ..Default::default() });
}

#[test]
fn own_histograms_images_and_the_configuration_are_read_back() {
    let Some(python) = python::with(MODULES) else { return };
    let dir = tempfile::tempdir().expect("a directory");
    let options = json!({ "histograms": ["gradients", "weights"], "histogram_every_n_steps": 2, "histogram_bins": 3,
        "params": ["**.weight"], "images": "pictures.*", "images_every_n_epochs": 2, "max_images": 2 });
    let mut rig = rig(dir.path(), options);
    rig.config(json!({ "trainer": { "seed": 7, "text": "```\n<b>" } })).on_train_start();
    let colours = [0.0, 51.0, 102.0, 153.0, 204.0, 255.0];
    let pictures = NamedTensors::default()
        .with("pictures.grey", [3, 1, 3], [-1.0, 0.0, 1.0, 10.0, f32::NAN, 12.0, 0.0, 0.0, 0.0])
        .with("pictures.colour", [1, 3, 1, 2], colours)
        .with("pictures.one", [2, 1], [1.0, 0.0])
        .with("labels", [2, 2], [0.0; 4]);
    for epoch in 0..3 {
        rig.epoch(epoch).step(epoch * 10).batch_tensors(pictures.clone());
        rig.batch(0).on_train_batch_start();
        rig.batch(1).on_train_batch_start();
    }
    (1..=4).for_each(|number| step(&mut rig, number));
    rig.finish();
    assert!(rig.failures().is_empty(), "{:?}", rig.failures());

    let read = python::run(&python, READ, &only(&dir.path().join("tensorboard")));
    let text =
        "    {\n      \"trainer\": {\n        \"seed\": 7,\n        \"text\": \"```\\n<b>\"\n      }\n    }";
    let grey = json!([["L", [0, 128, 255]], ["L", [0, 0, 255]]]);
    let colour = json!([["RGB", [0, 102, 204, 51, 153, 255]]]);
    let twice = |size: [u32; 2], pictures: &Value| {
        json!(["images", [[NOW, 0, size, pictures], [NOW, 20, size, pictures]]])
    };
    let of = |values: fn(f32) -> [f32; 2]| {
        json!([2, 4].map(|step: u16| histogram(step.into(), &Histogram::of(&values(step.into()), 3))))
    };
    let expected = json!({
        "scalars": {},
        "histograms": {
            "gradients/fc.weight": of(|step| [step, 1.0]),
            "weights/fc.weight": of(|step| [-1.0, step]),
        },
        "tensors": {
            "config": ["text", [[NOW, 0, [text]]]],
            "pictures.grey": twice([3, 1], &grey),
            "pictures.colour": twice([2, 1], &colour),
            "pictures.one": twice([1, 2], &json!([["L", [255, 0]]])),
        },
    });
    assert_eq!(read, expected);
}

/// Reads copies of the file, truncated at every position within the last record.
const CUT: &str = r#"
import json, logging, os, sys, tempfile
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
logging.disable(logging.CRITICAL)
whole = open(sys.argv[1], "rb").read()
last = int(os.environ["LAST"])
found = []
for end in range(len(whole) - last, len(whole) + 1):
    with tempfile.TemporaryDirectory() as directory:
        path = os.path.join(directory, "events.out.tfevents.1.host")
        open(path, "wb").write(whole[:end])
        reader = EventAccumulator(path)
        reader.Reload()
        found.append([event.value for event in reader.Scalars("x")])
print(json.dumps(found))
"#;

#[test]
fn a_file_truncated_within_its_last_record_is_readable_up_to_it() {
    let Some(python) = python::with(MODULES) else { return };
    let dir = tempfile::tempdir().expect("a directory");
    let mut rig = rig(dir.path(), json!({}));
    let length = |path: &Path| std::fs::metadata(path).expect("it is there").len();
    let mut lengths = Vec::new();
    for step in 1..=3 {
        rig.metric("x", step as f64).step(step).on_log();
        rig.finish();
        lengths.push(length(&only(&dir.path().join("tensorboard"))));
    }
    let last = lengths[2] - lengths[1];
    let script = format!("import os\nos.environ[\"LAST\"] = \"{last}\"\n{CUT}");
    let read = python::run(&python, &script, &only(&dir.path().join("tensorboard")));
    let mut expected = vec![json!([1.0, 2.0]); usize::try_from(last).expect("short")];
    expected.push(json!([1.0, 2.0, 3.0]));
    assert_eq!(read, Value::from(expected));
}
