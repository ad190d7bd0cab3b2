//! A byte-level language model like GPT-2: 256 tokens, learned position embeddings, transformer blocks with a residual stream.
//!
//! Some formulas are arranged for Burn's CPU backend, whose autodiff decomposes softmax and slices into single operations.
//! Comments mark them.

mod attention;
mod generate;
mod options;
#[cfg(test)]
mod tests;

use burn::module::{Initializer, Module};
use burn::nn::{Dropout, DropoutConfig, Embedding, EmbeddingConfig, LayerNorm, LayerNormConfig, Linear};
use burn::tensor::activation::gelu;
use burn::tensor::{Device, Int, Tensor};
use tenterhook_burn::HookPoints;

use attention::Attention;
pub use generate::Sampling;
pub use options::GptOptions;

/// The vocabulary: every byte is a token.
const TOKENS: usize = 256;
/// Standard deviation of GPT-2's initial weights.
const STD: f64 = 0.02;

/// The model: computes the logits of the next byte after each byte.
#[derive(Module, Debug)]
pub struct Gpt {
    tok: Embedding,
    pos: Embedding,
    dropout: Dropout,
    blocks: Vec<Block>,
    norm: LayerNorm,
    head: Linear,
}

#[derive(Module, Debug)]
struct Block {
    norm1: LayerNorm,
    attn: Attention,
    norm2: LayerNorm,
    mlp: Mlp,
    dropout: Dropout,
}

#[derive(Module, Debug)]
struct Mlp {
    fc1: Linear,
    fc2: Linear,
}

impl Gpt {
    /// A model with the initialization of GPT-2.
    ///
    /// Parameters are initialised at first use from the device's random generator, as in all Burn models. Panics on options
    /// that [`GptOptions::problems`] refuses.
    #[must_use]
    pub fn new(options: &GptOptions, device: &Device) -> Self {
        let embedding =
            |rows| EmbeddingConfig::new(rows, options.width).with_initializer(normal(STD)).init(device);
        Self {
            tok: embedding(TOKENS),
            pos: embedding(options.context),
            dropout: DropoutConfig::new(options.dropout).init(),
            blocks: (0..options.layers).map(|_| Block::new(options, device)).collect(),
            norm: LayerNormConfig::new(options.width).init(device),
            head: Linear { weight: normal(STD).init([options.width, TOKENS], device), bias: None },
        }
    }

    /// The context length.
    #[must_use]
    pub fn context(&self) -> usize {
        self.pos.weight.dims()[0]
    }

    /// Logits `[batch, time, 256]` of the next byte after each of the tokens `[batch, time]`.
    ///
    /// Panics if `time` exceeds the [`context`](Self::context).
    #[must_use]
    pub fn forward(&self, tokens: Tensor<2, Int>) -> Tensor<3> {
        self.forward_with(tokens, &mut ())
    }

    /// [`forward`](Self::forward) with these hook points:
    ///
    /// - `embeddings.tok`, `embeddings.pos` and `embeddings`, their sum after dropout;
    /// - for each block, such as `blocks.0`: `norm1`, `attn.q`, `attn.k`, `attn.v`, `attn.pattern`, `attn.mixed`, `attn`,
    ///   `middle` (the residual stream after attention), `norm2`, `mlp.hidden` (after the nonlinearity), `mlp`, and
    ///   `blocks.0` itself, the residual stream after the block;
    /// - `norm` and `logits`.
    pub fn forward_with(&self, tokens: Tensor<2, Int>, points: &mut impl HookPoints) -> Tensor<3> {
        let x = self.stream(tokens, points);
        let logits = self.head.forward(x);
        points.point("logits", &logits);
        logits
    }

    /// Mean cross-entropy, in nats per byte, of the `targets` that follow the `tokens`.
    #[must_use]
    pub fn loss(&self, tokens: Tensor<2, Int>, targets: Tensor<2, Int>) -> Tensor<1> {
        cross_entropy(self.forward(tokens), targets)
    }

    /// The normalized residual stream before the head.
    fn stream(&self, tokens: Tensor<2, Int>, points: &mut impl HookPoints) -> Tensor<3> {
        let [_, time] = tokens.dims();
        let pos = self.pos.weight.val().slice(0..time).unsqueeze();
        let tok = self.tok.forward(tokens);
        points.point("embeddings.tok", &tok);
        points.point("embeddings.pos", &pos);
        let mut x = self.dropout.forward(tok + pos);
        points.point("embeddings", &x);
        let mask = attention::mask(time, &x.device());
        for (i, block) in self.blocks.iter().enumerate() {
            x = points.scope(format_args!("blocks.{i}"), |points| block.forward(x, &mask, points));
            points.point(format_args!("blocks.{i}"), &x);
        }
        let x = self.norm.forward(x);
        points.point("norm", &x);
        x
    }
}

impl Block {
    fn new(options: &GptOptions, device: &Device) -> Self {
        let width = options.width;
        // Scaled down as in GPT-2: each block adds to the residual stream twice, so its variance would grow with depth.
        let out = STD / ((2 * options.layers) as f64).sqrt();
        Self {
            norm1: LayerNormConfig::new(width).init(device),
            attn: Attention::new(options, out, device),
            norm2: LayerNormConfig::new(width).init(device),
            mlp: Mlp {
                fc1: linear(width, 4 * width, STD, device),
                fc2: linear(4 * width, width, out, device),
            },
            dropout: DropoutConfig::new(options.dropout).init(),
        }
    }

    fn forward(&self, x: Tensor<3>, mask: &Tensor<4>, points: &mut impl HookPoints) -> Tensor<3> {
        let normed = self.norm1.forward(x.clone());
        points.point("norm1", &normed);
        let attended = points.scope("attn", |points| self.attn.forward(&normed, mask, points));
        points.point("attn", &attended);
        let x = x + self.dropout.forward(attended);
        points.point("middle", &x);
        let normed = self.norm2.forward(x.clone());
        points.point("norm2", &normed);
        let output = points.scope("mlp", |points| self.mlp.forward(normed, points));
        points.point("mlp", &output);
        x + self.dropout.forward(output)
    }
}

impl Mlp {
    fn forward(&self, x: Tensor<3>, points: &mut impl HookPoints) -> Tensor<3> {
        let hidden = gelu(self.fc1.forward(x));
        points.point("hidden", &hidden);
        self.fc2.forward(hidden)
    }
}

/// Mean cross-entropy of logits `[batch, time, tokens]` against targets `[batch, time]`.
///
/// Computed as log-sum-exp minus the logit of the target, which saves one pass over the logits compared to
/// log-softmax.
#[must_use]
pub fn cross_entropy(logits: Tensor<3>, targets: Tensor<2, Int>) -> Tensor<1> {
    let [batch, time, tokens] = logits.dims();
    let logits = logits.reshape([batch * time, tokens]);
    let shifted = logits.clone() - logits.detach().max_dim(1);
    let picked = shifted.clone().gather(1, targets.reshape([batch * time, 1]));
    (shifted.exp().sum_dim(1).log() - picked).mean()
}

fn linear(from: usize, to: usize, std: f64, device: &Device) -> Linear {
    Linear { weight: normal(std).init([from, to], device), bias: Some(Initializer::Zeros.init([to], device)) }
}

fn normal(std: f64) -> Initializer {
    Initializer::Normal { mean: 0.0, std }
}
