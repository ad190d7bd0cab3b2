//! A byte-level language model in the manner of GPT-2: 256 tokens, learned positions, blocks of
//! attention and a perceptron that each add to a residual stream.
//!
//! Formulas are arranged for Burn's CPU backend, whose autodiff takes softmax and slices apart
//! into single operations; where the arrangement is not the obvious one, a comment says so.

mod attention;
mod generate;
mod options;
#[cfg(test)]
mod tests;

use burn::module::{Initializer, Module};
use burn::nn::{Dropout, DropoutConfig, Embedding, EmbeddingConfig, LayerNorm, LayerNormConfig, Linear};
use burn::tensor::activation::gelu;
use burn::tensor::{Device, Int, Tensor};
use tenterhook_burn::Points;

use attention::Attention;
pub use options::GptOptions;

/// Every byte is a token.
const TOKENS: usize = 256;
/// Standard deviation of GPT-2's initial weights.
const STD: f64 = 0.02;

/// The model: bytes to the logits of the byte that follows each of them.
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
    /// A new model with GPT-2's initial distribution.
    ///
    /// Parameters come from the device's random generator when they are first used, as always in
    /// Burn. Panics on options that [`GptOptions::problems`] refuses.
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

    /// The longest sequence the model reads.
    #[must_use]
    pub fn context(&self) -> usize {
        self.pos.weight.dims()[0]
    }

    /// Logits `[batch, time, 256]` of the next byte after each of the tokens `[batch, time]`.
    ///
    /// Panics if `time` is longer than the [`context`](Self::context).
    #[must_use]
    pub fn forward(&self, tokens: Tensor<2, Int>) -> Tensor<3> {
        self.forward_with(tokens, &mut ())
    }

    /// [`forward`](Self::forward), showing
    ///
    /// - `embeddings.tok`, `embeddings.pos` and `embeddings`, their sum;
    /// - for each block, below `blocks.0`: `norm1`, `attn.q`, `attn.k`, `attn.v`, `attn.pattern`, `attn.mixed` and
    ///   `attn`, the residual stream between both halves as `middle`, `norm2`, `mlp.hidden` (after its
    ///   nonlinearity) and `mlp`, and the residual stream after it as `blocks.0` itself;
    /// - `norm` and `logits`.
    pub fn forward_with(&self, tokens: Tensor<2, Int>, points: &mut impl Points) -> Tensor<3> {
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

    /// Everything before the head: the normalised residual stream.
    fn stream(&self, tokens: Tensor<2, Int>, points: &mut impl Points) -> Tensor<3> {
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
        // Each block adds to the stream twice: this keeps its variance from growing with depth.
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

    fn forward(&self, x: Tensor<3>, mask: &Tensor<4>, points: &mut impl Points) -> Tensor<3> {
        let normed = self.norm1.forward(x.clone());
        points.point("norm1", &normed);
        let attended = points.scope("attn", |points| self.attn.forward(&normed, mask, points));
        points.point("attn", &attended);
        let x = x + self.dropout.forward(attended);
        points.point("middle", &x);
        let normed = self.norm2.forward(x.clone());
        points.point("norm2", &normed);
        let thought = points.scope("mlp", |points| self.mlp.forward(normed, points));
        points.point("mlp", &thought);
        x + self.dropout.forward(thought)
    }
}

impl Mlp {
    fn forward(&self, x: Tensor<3>, points: &mut impl Points) -> Tensor<3> {
        let hidden = gelu(self.fc1.forward(x));
        points.point("hidden", &hidden);
        self.fc2.forward(hidden)
    }
}

/// Mean cross-entropy of logits `[batch, time, tokens]` against targets `[batch, time]`.
///
/// As log-sum-exp minus the target's logit: one pass over the logits less than by log-softmax.
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
