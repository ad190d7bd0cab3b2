//! Causal self-attention.

use burn::module::{Module, Param};
use burn::nn::Linear;
use burn::tensor::module::linear;
use burn::tensor::{Bool, Device, Tensor};
use tenterhook_burn::HookPoints;

use super::{GptOptions, STD};

/// The attention of a block. `qkv` holds the projections to queries, keys and values side by side.
#[derive(Module, Debug)]
pub(super) struct Attention {
    qkv: Linear,
    proj: Linear,
    heads: usize,
}

/// The causal mask that is added to the scores `[batch, head, query, key]`: 0 for the past, minus infinity for the future. It is
/// not part of the graph, so it causes no NaN gradients.
pub(super) fn mask(time: usize, device: &Device) -> Tensor<4> {
    let future = Tensor::<2, Bool>::tril_mask([time, time], 0, device);
    Tensor::<2>::zeros([time, time], device).mask_fill(future, f32::NEG_INFINITY).unsqueeze()
}

impl Attention {
    pub(super) fn new(options: &GptOptions, out: f64, device: &Device) -> Self {
        let width = options.width;
        Self {
            qkv: super::linear(width, 3 * width, STD, device),
            proj: super::linear(width, width, out, device),
            heads: options.heads,
        }
    }

    /// Computes the attention over `x` `[batch, time, width]`.
    pub(super) fn forward(&self, x: &Tensor<3>, mask: &Tensor<4>, points: &mut impl HookPoints) -> Tensor<3> {
        let [batch, time, width] = x.dims();
        let scale = ((width / self.heads) as f64).powf(-0.5);
        let [q, k, v] = self.split(x);
        points.point("q", &q);
        points.point("k", &k);
        points.point("v", &v);
        let scores = (q * scale).matmul(k.swap_dims(2, 3)) + mask.clone();
        // A softmax whose division is applied to the product with `v`, a smaller tensor.
        let weights = (scores.clone() - scores.detach().max_dim(3)).exp();
        let sum = weights.clone().sum_dim(3);
        points.point_with("pattern", || weights.clone() / sum.clone());
        let mixed = weights.matmul(v) / sum;
        points.point("mixed", &mixed);
        self.proj.forward(mixed.swap_dims(1, 2).reshape([batch, time, width]))
    }

    /// Queries, keys and values, each `[batch, head, time, width / heads]`.
    ///
    /// Slices the parameters instead of their product with `x`: the gradient of a slice is as large as the sliced tensor, and
    /// the parameters are much smaller.
    fn split(&self, x: &Tensor<3>) -> [Tensor<4>; 3] {
        let [batch, time, width] = x.dims();
        let weight = self.qkv.weight.val();
        let bias = self.qkv.bias.as_ref().map(Param::val);
        [0, 1, 2].map(|part| {
            let columns = part * width..(part + 1) * width;
            let bias = bias.clone().map(|bias| bias.slice([columns.clone()]));
            let weight = weight.clone().slice([0..width, columns]);
            linear(x.clone(), weight, bias)
                .reshape([batch, time, self.heads, width / self.heads])
                .swap_dims(1, 2)
        })
    }
}

#[cfg(test)]
mod tests {
    use burn::tensor::Distribution;
    use burn::tensor::module::attention;
    use burn::tensor::ops::AttentionModuleOptions;

    use super::*;

    #[test]
    fn it_computes_the_same_as_burns_attention() {
        let device = Device::flex();
        let options = GptOptions { heads: 2, width: 8, ..GptOptions::default() };
        let ours = Attention::new(&options, STD, &device);
        let x = Tensor::random([2, 5, 8], Distribution::Normal(0.0, 30.0), &device);
        let [q, k, v] = ours.split(&x);
        let causal = AttentionModuleOptions { is_causal: true, ..AttentionModuleOptions::default() };
        let mixed = attention(q, k, v, None, None, causal);
        let burns = ours.proj.forward(mixed.swap_dims(1, 2).reshape([2, 5, 8]));
        let ours = ours.forward(&x, &mask(5, &device), &mut ());
        let scale: f32 = burns.clone().abs().max().into_scalar();
        let apart: f32 = (ours - burns).abs().max().into_scalar();
        assert!(apart < 1e-4 * scale, "{apart} of {scale}");
    }
}
