//! Tests of the language model as a whole.

use burn::module::Module;
use burn::optim::{AdamWConfig, GradientsParams};
use burn::tensor::{Device, Int, Tensor, TensorData};

use super::{Gpt, GptOptions, Sampling, cross_entropy};
use crate::recorded_points::{RecordedPoints, names};

fn small() -> GptOptions {
    GptOptions { context: 8, layers: 2, heads: 2, width: 16, dropout: 0.0 }
}

fn tokens(bytes: &[u8], device: &Device) -> Tensor<2, Int> {
    let bytes: Vec<i64> = bytes.iter().map(|&byte| i64::from(byte)).collect();
    Tensor::<1, Int>::from_data(TensorData::from(&bytes[..]), device).unsqueeze()
}

/// Largest difference between two tensors.
fn apart<const D: usize>(a: Tensor<D>, b: Tensor<D>) -> f32 {
    (a - b).abs().max().into_scalar()
}

#[test]
fn parameters_are_named_for_their_place_in_the_model() {
    let given = names(&Gpt::new(&small(), &Device::flex()));
    for name in [
        "tok.weight",
        "pos.weight",
        "blocks.0.norm1.gamma",
        "blocks.1.attn.qkv.weight",
        "blocks.1.attn.proj.bias",
        "blocks.1.mlp.fc1.weight",
        "norm.beta",
        "head.weight",
    ] {
        assert!(given.iter().any(|given| given == name), "{name} in {given:?}");
    }
}

#[test]
fn a_byte_never_sees_the_bytes_after_it() {
    let device = Device::flex();
    let model = Gpt::new(&small(), &device);
    let past = |text| model.forward(tokens(text, &device)).slice([0..1, 0..4]);
    assert_eq!(past(b"hookless").into_data(), past(b"hook????").into_data());
    assert!(apart(past(b"hookless"), past(b"look????")) > 0.0);
}

#[test]
fn the_pattern_of_attention_sums_to_one_over_the_past() {
    struct Patterns(usize);
    impl tenterhook_burn::HookPoints for Patterns {
        fn scope<R>(&mut self, _: impl std::fmt::Display, inside: impl FnOnce(&mut Self) -> R) -> R {
            inside(self)
        }
        fn point_with<const D: usize>(
            &mut self,
            name: impl std::fmt::Display,
            x: impl FnOnce() -> Tensor<D>,
        ) {
            if name.to_string() != "pattern" {
                return;
            }
            self.0 += 1;
            let x = x();
            let dims = x.dims();
            assert_eq!(dims[D - 2..], [8, 8]);
            let sums = x.clone().sum_dim(D - 1);
            assert!(apart(sums.clone(), sums.ones_like()) < 1e-5);
            let first_row: Vec<f32> = x.clone().into_data().iter().take(8).collect();
            assert!(first_row[1..].iter().all(|weight| *weight == 0.0));
        }
    }
    let device = Device::flex();
    let mut patterns = Patterns(0);
    let _ = Gpt::new(&small(), &device).forward_with(tokens(b"hookless", &device), &mut patterns);
    assert_eq!(patterns.0, 2);
}

#[test]
fn every_layer_is_a_hook_point_and_observing_it_changes_nothing() {
    let device = Device::flex();
    let options = GptOptions { layers: 1, ..small() };
    let model = Gpt::new(&options, &device);
    let mut recorded = RecordedPoints::default();
    let watched = model.forward_with(tokens(b"hook", &device), &mut recorded);
    assert_eq!(
        recorded.names(),
        [
            "embeddings.tok",
            "embeddings.pos",
            "embeddings",
            "blocks.0.norm1",
            "blocks.0.attn.q",
            "blocks.0.attn.k",
            "blocks.0.attn.v",
            "blocks.0.attn.pattern",
            "blocks.0.attn.mixed",
            "blocks.0.attn",
            "blocks.0.middle",
            "blocks.0.norm2",
            "blocks.0.mlp.hidden",
            "blocks.0.mlp",
            "blocks.0",
            "norm",
            "logits"
        ]
    );
    let shape = |name| &recorded.points.iter().find(|(point, _)| point == name).unwrap().1;
    let GptOptions { width, heads, .. } = options;
    assert_eq!(*shape("blocks.0.attn.q"), [1, heads, 4, width / heads]);
    assert_eq!(*shape("blocks.0.attn.pattern"), [1, heads, 4, 4]);
    assert_eq!(*shape("blocks.0.mlp.hidden"), [1, 4, 4 * width]);
    assert_eq!(*shape("logits"), [1, 4, 256]);
    let unwatched = model.forward(tokens(b"hook", &device));
    assert_eq!(watched.into_data(), unwatched.into_data());
}

#[test]
fn an_untrained_model_gives_all_bytes_about_the_same_probability() {
    let device = Device::flex();
    let model = Gpt::new(&small(), &device);
    let loss: f32 = model.loss(tokens(b"hookless", &device), tokens(b"ookless.", &device)).into_scalar();
    assert!((loss - 256_f32.ln()).abs() < 0.2, "{loss}");
}

#[test]
fn the_loss_equals_that_of_burns_cross_entropy() {
    let device = Device::flex();
    let spread = burn::tensor::Distribution::Normal(0.0, 9.0);
    let logits = Tensor::<3>::random([2, 3, 256], spread, &device);
    let targets = Tensor::<2, Int>::from_data([[0, 255, 7], [9, 9, 100]], &device);
    let burns = burn::nn::loss::CrossEntropyLossConfig::new()
        .init(&device)
        .forward(logits.clone().reshape([6, 256]), targets.clone().reshape([6]));
    assert!(apart(cross_entropy(logits, targets), burns) < 1e-5);
}

#[test]
fn every_parameter_gets_a_gradient_and_the_model_memorizes_a_sentence() {
    let text = b"on tenters";
    let device = Device::flex().autodiff();
    let options = GptOptions { context: 9, ..small() };
    let mut model = Gpt::new(&options, &device);
    let mut optimizer = AdamWConfig::new().init();
    for _ in 0..60 {
        let loss = model.loss(tokens(&text[..9], &device), tokens(&text[1..], &device));
        let gradients = GradientsParams::from_grads(loss.backward(), &model);
        assert_eq!(gradients.len(), names(&model).len());
        model = optimizer.step(1e-2, model, gradients);
    }
    let sampling = Sampling { bytes: 9, temperature: 0.0, top_k: None };
    let written = model.generate(b"o", &sampling, &mut || 0.5, &mut ());
    assert_eq!(String::from_utf8_lossy(&written), "n tenters");
}

#[test]
fn the_same_random_numbers_generate_the_same_text_beyond_the_context() {
    let device = Device::flex().autodiff();
    let options = GptOptions { dropout: 0.5, ..small() };
    let model = Gpt::new(&options, &device);
    let write = |from: f64| {
        let mut uniform = from;
        let draw = &mut || {
            uniform = (uniform + 0.618).fract();
            uniform
        };
        model.generate(b"", &Sampling { bytes: 20, temperature: 1.0, top_k: Some(40) }, draw, &mut ())
    };
    assert_eq!(write(0.1).len(), 20);
    assert_eq!(write(0.1), write(0.1));
    assert_ne!(write(0.1), write(0.5));
}

#[test]
fn impossible_options_are_named_by_key() {
    assert!(GptOptions::default().problems().is_empty());
    let keys = |options: GptOptions| -> Vec<_> {
        options.problems().into_iter().map(|problem| problem.key).collect()
    };
    let uneven = GptOptions { heads: 3, dropout: 1.0, ..small() };
    assert_eq!(keys(uneven), ["model.heads", "model.dropout"]);
    let empty = GptOptions { context: 0, heads: 0, ..small() };
    assert_eq!(keys(empty), ["model.context", "model.heads"]);
}

#[test]
fn the_estimate_of_memory_counts_every_parameter() {
    let options = GptOptions { context: 8, layers: 3, heads: 2, width: 16, dropout: 0.0 };
    let parameters = Gpt::new(&options, &Device::flex()).num_params() as f64;
    let mask = crate::KEPT_BYTES * 64.0;
    let estimate = options.memory(0.0);
    assert!((estimate.bytes() - mask - crate::TRAINED_BYTES * parameters).abs() < 1.0, "{estimate:?}");
    assert!(options.memory(32.0).bytes() > estimate.bytes());
}

#[test]
fn ten_thousand_layers_are_too_much_for_a_machine_of_24_gb() {
    let of = |layers| GptOptions { layers, ..GptOptions::default() }.memory(32.0).check(Some(24_000_000_000));
    assert_eq!(of(10_001).unwrap_err().key, "model.layers");
    assert_eq!(of(2), Ok(()));
}

#[test]
fn too_little_memory_is_attributed_to_the_disproportionate_size() {
    let blamed = |context, width, batch| {
        let options = GptOptions { context, width, ..GptOptions::default() };
        options.memory(batch).check(Some(1_000_000_000)).unwrap_err().key
    };
    assert_eq!(blamed(64, 128, 10_000.0), "loader.batch_size");
    assert_eq!(blamed(4096, 128, 64.0), "model.context");
    assert_eq!(blamed(64, 8192, 64.0), "model.width");
}
