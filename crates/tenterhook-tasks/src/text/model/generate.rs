//! Writing text with the model, byte by byte.

use burn::module::Module;
use burn::tensor::{Device, Int, Tensor, TensorData};

use tenterhook_burn::Points;

use super::Gpt;

impl Gpt {
    /// Continues `prompt` by so many bytes and returns those alone.
    ///
    /// Each byte is drawn with one number of `draw`, uniform from 0 to 1, so the same numbers write
    /// the same text. A low `temperature` keeps to the likely bytes, and 0 always takes the likeliest;
    /// `top_k` considers only so many of the likeliest. An empty prompt stands for a line break.
    pub fn generate(
        &self,
        prompt: &[u8],
        bytes: usize,
        temperature: f64,
        top_k: Option<usize>,
        draw: &mut dyn FnMut() -> f64,
    ) -> Vec<u8> {
        self.generate_with(prompt, bytes, temperature, top_k, draw, &mut ())
    }

    /// [`generate`](Self::generate), showing the activations behind each byte as
    /// [`forward_with`](Self::forward_with) does, but for `logits`: they are those of the last byte alone.
    pub fn generate_with(
        &self,
        prompt: &[u8],
        bytes: usize,
        temperature: f64,
        top_k: Option<usize>,
        draw: &mut dyn FnMut() -> f64,
        points: &mut impl Points,
    ) -> Vec<u8> {
        // Without dropout, and without a record for a backward pass, whatever the caller has.
        let model = self.valid();
        let device = model.head.weight.device();
        let mut text = if prompt.is_empty() { vec![b'\n'] } else { prompt.to_vec() };
        let start = text.len();
        for _ in 0..bytes {
            let seen = &text[text.len().saturating_sub(model.context())..];
            let logits = model.next_logits(seen, &device, points);
            text.push(sample(&logits, temperature, top_k, draw()));
        }
        text.split_off(start)
    }

    /// The logits after the last of these bytes.
    fn next_logits(&self, seen: &[u8], device: &Device, points: &mut impl Points) -> Vec<f32> {
        let tokens: Vec<i64> = seen.iter().map(|&byte| i64::from(byte)).collect();
        let tokens = Tensor::<1, Int>::from_data(TensorData::from(&tokens[..]), device);
        let x = self.stream(tokens.unsqueeze(), points);
        let last = x.slice([0..1, seen.len() - 1..seen.len()]);
        let logits = self.head.forward(last);
        points.point("logits", &logits);
        logits.into_data().iter::<f32>().collect()
    }
}

/// The byte at the place `uniform` (0 to 1) when all bytes are lined up, likeliest first, each as
/// wide as its probability.
fn sample(logits: &[f32], temperature: f64, top_k: Option<usize>, uniform: f64) -> u8 {
    let mut order: Vec<u8> = (0..=u8::MAX).collect();
    let logit = |byte: u8| f64::from(logits[usize::from(byte)]);
    order.sort_by(|&a, &b| logit(b).total_cmp(&logit(a)));
    if temperature <= 0.0 {
        return order[0];
    }
    order.truncate(top_k.unwrap_or(order.len()).max(1));
    let best = logit(order[0]);
    let weight = |byte: u8| ((logit(byte) - best) / temperature).exp();
    let mut left = uniform * order.iter().map(|&byte| weight(byte)).sum::<f64>();
    for &byte in &order {
        left -= weight(byte);
        if left < 0.0 {
            return byte;
        }
    }
    // Rounding, or a uniform number of exactly 1.
    order[order.len() - 1]
}

#[cfg(test)]
mod tests {
    use super::sample;

    /// `a` has 6 chances, `b` 3, `c` 1, and the rest next to none.
    fn logits() -> Vec<f32> {
        let mut logits = vec![-50.0; 256];
        for (byte, chances) in [(b'a', 6_f32), (b'b', 3.0), (b'c', 1.0)] {
            logits[usize::from(byte)] = chances.ln();
        }
        logits
    }

    #[test]
    fn a_byte_is_drawn_in_proportion_to_its_probability() {
        let drawn: Vec<u8> =
            (0..10).map(|i| sample(&logits(), 1.0, None, f64::from(i).mul_add(0.1, 0.05))).collect();
        assert_eq!(drawn, b"aaaaaabbbc");
    }

    #[test]
    fn top_k_leaves_out_the_unlikely() {
        assert_eq!(sample(&logits(), 1.0, Some(2), 0.999), b'b');
        assert_eq!(sample(&logits(), 1.0, Some(1), 0.999), b'a');
        assert_eq!(sample(&logits(), 1.0, Some(0), 0.999), b'a');
    }

    #[test]
    fn temperature_sharpens_or_flattens() {
        assert_eq!(sample(&logits(), 0.0, None, 0.999), b'a');
        assert_eq!(sample(&logits(), 0.1, None, 0.9), b'a');
        assert_eq!(sample(&logits(), 1.0, None, 0.7), b'b');
    }

    #[test]
    fn a_uniform_number_of_one_still_gives_a_byte() {
        assert_eq!(sample(&logits(), 1.0, Some(3), 1.0), b'c');
    }
}
