//! The options of the optimizers that a configuration can name.

use burn::optim::decay::WeightDecayConfig;
use burn::optim::momentum::MomentumConfig;
use burn::optim::{AdaGradConfig, AdamConfig, AdamWConfig, LionConfig, RmsPropConfig, SgdConfig};
use schemars::JsonSchema;
use serde::Deserialize;
use tenterhook::optim::{BuiltInOptimizer, OptimizerOptions};
use tenterhook::{BoxError, OptionError};

use crate::algorithm::{Algorithm, BurnEngine};

/// The optimizers that need no registration, the default first.
pub(crate) fn built_in() -> Vec<BuiltInOptimizer<BurnEngine>> {
    vec![
        BuiltInOptimizer::new::<AdamW>("adamw"),
        BuiltInOptimizer::new::<Adam>("adam"),
        BuiltInOptimizer::new::<Sgd>("sgd"),
        BuiltInOptimizer::new::<RmsProp>("rmsprop"),
        BuiltInOptimizer::new::<AdaGrad>("adagrad"),
        BuiltInOptimizer::new::<Lion>("lion"),
    ]
}

/// Adam with decoupled weight decay.
#[derive(Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
struct AdamW {
    /// How slowly the two means forget, of `adamw`, `adam` and `lion`. Unset: the algorithm's own.
    betas: Option<[f64; 2]>,
    /// What keeps a division from being one by 0. Unset: the algorithm's own.
    epsilon: Option<f64>,
}

/// Adam.
#[derive(Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
struct Adam {
    /// How slowly the two means forget, of `adamw`, `adam` and `lion`. Unset: the algorithm's own.
    betas: Option<[f64; 2]>,
    /// What keeps a division from being one by 0. Unset: the algorithm's own.
    epsilon: Option<f64>,
}

/// Stochastic gradient descent, with or without momentum.
#[derive(Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
struct Sgd {
    /// Momentum, of `sgd` and `rmsprop`. Unset: none.
    momentum: Option<f64>,
    /// Whether the momentum looks ahead, of `sgd`. Unset: no.
    nesterov: Option<bool>,
}

/// `RMSprop`.
#[derive(Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
struct RmsProp {
    /// Momentum, of `sgd` and `rmsprop`. Unset: none.
    momentum: Option<f64>,
    /// What keeps a division from being one by 0. Unset: the algorithm's own.
    epsilon: Option<f64>,
}

/// `AdaGrad`.
#[derive(Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
struct AdaGrad {
    /// What keeps a division from being one by 0. Unset: the algorithm's own.
    epsilon: Option<f64>,
}

/// Lion.
#[derive(Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
struct Lion {
    /// How slowly the two means forget, of `adamw`, `adam` and `lion`. Unset: the algorithm's own.
    betas: Option<[f64; 2]>,
}

impl OptimizerOptions<BurnEngine> for AdamW {
    fn algorithm(&self, weight_decay: f64) -> Result<Algorithm, BoxError> {
        let [beta_1, beta_2] = betas(self.betas, ADAM)?;
        let algorithm = AdamWConfig::new().with_beta_1(beta_1).with_beta_2(beta_2);
        let algorithm = algorithm.with_epsilon(epsilon(self.epsilon, 1e-8)?);
        Ok(algorithm.with_weight_decay(narrow(weight_decay)).build().into())
    }

    fn momentum(&self) -> Option<f64> {
        Some(self.betas.unwrap_or(ADAM)[0])
    }
}

impl OptimizerOptions<BurnEngine> for Adam {
    fn algorithm(&self, weight_decay: f64) -> Result<Algorithm, BoxError> {
        let [beta_1, beta_2] = betas(self.betas, ADAM)?;
        let algorithm = AdamConfig::new().with_beta_1(beta_1).with_beta_2(beta_2);
        let algorithm = algorithm.with_epsilon(epsilon(self.epsilon, 1e-8)?);
        Ok(algorithm.with_weight_decay(decay(weight_decay)).build().into())
    }

    fn momentum(&self) -> Option<f64> {
        Some(self.betas.unwrap_or(ADAM)[0])
    }
}

impl OptimizerOptions<BurnEngine> for Sgd {
    fn algorithm(&self, weight_decay: f64) -> Result<Algorithm, BoxError> {
        let momentum = momentum(self.momentum)?.filter(|momentum| *momentum > 0.0).map(|momentum| {
            let looks_ahead = self.nesterov.unwrap_or(false);
            MomentumConfig::new().with_momentum(momentum).with_dampening(0.0).with_nesterov(looks_ahead)
        });
        Ok(SgdConfig::new().with_weight_decay(decay(weight_decay)).with_momentum(momentum).build().into())
    }

    fn momentum(&self) -> Option<f64> {
        self.momentum
    }
}

impl OptimizerOptions<BurnEngine> for RmsProp {
    fn algorithm(&self, weight_decay: f64) -> Result<Algorithm, BoxError> {
        let momentum = momentum(self.momentum)?.unwrap_or(0.0);
        let algorithm = RmsPropConfig::new().with_momentum(narrow(momentum));
        let algorithm = algorithm.with_epsilon(epsilon(self.epsilon, 1e-8)?);
        Ok(algorithm.with_weight_decay(decay(weight_decay)).build().into())
    }

    fn momentum(&self) -> Option<f64> {
        self.momentum
    }
}

impl OptimizerOptions<BurnEngine> for AdaGrad {
    fn algorithm(&self, weight_decay: f64) -> Result<Algorithm, BoxError> {
        let algorithm = AdaGradConfig::new().with_epsilon(epsilon(self.epsilon, 1e-10)?);
        Ok(algorithm.with_weight_decay(decay(weight_decay)).build().into())
    }
}

impl OptimizerOptions<BurnEngine> for Lion {
    fn algorithm(&self, weight_decay: f64) -> Result<Algorithm, BoxError> {
        let [beta_1, beta_2] = betas(self.betas, LION)?;
        let algorithm = LionConfig::new().with_beta_1(beta_1).with_beta_2(beta_2);
        Ok(algorithm.with_weight_decay(narrow(weight_decay)).build().into())
    }

    fn momentum(&self) -> Option<f64> {
        Some(self.betas.unwrap_or(LION)[0])
    }
}

/// The usual betas.
const ADAM: [f64; 2] = [0.9, 0.999];
const LION: [f64; 2] = [0.9, 0.99];

#[allow(clippy::cast_possible_truncation)] // Burn's settings are 32-bit
fn narrow(value: f64) -> f32 {
    value as f32
}

fn decay(weight_decay: f64) -> Option<WeightDecayConfig> {
    (weight_decay > 0.0).then(|| WeightDecayConfig::new(narrow(weight_decay)))
}

fn is_share(value: f64) -> bool {
    (0.0..1.0).contains(&value)
}

fn momentum(given: Option<f64>) -> Result<Option<f64>, OptionError> {
    match given {
        Some(momentum) if !is_share(momentum) => {
            Err(OptionError::new("momentum", "momentum must be from 0.0 to below 1.0"))
        }
        other => Ok(other),
    }
}

fn betas(given: Option<[f64; 2]>, usual: [f64; 2]) -> Result<[f32; 2], OptionError> {
    let betas = given.unwrap_or(usual);
    if betas.into_iter().all(is_share) {
        return Ok(betas.map(narrow));
    }
    Err(OptionError::new("betas", "both must be from 0.0 to below 1.0"))
}

fn epsilon(given: Option<f64>, usual: f64) -> Result<f32, OptionError> {
    let epsilon = given.unwrap_or(usual);
    if epsilon.is_finite() && epsilon > 0.0 {
        return Ok(narrow(epsilon));
    }
    Err(OptionError::new("epsilon", "it must be above 0"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hooks_are_shown_the_momentum_that_the_algorithm_has_also_where_nobody_set_it() {
        assert_eq!(AdamW::default().momentum(), Some(0.9));
        assert_eq!(Adam::default().momentum(), Some(0.9));
        assert_eq!(Lion::default().momentum(), Some(0.9));
        assert_eq!(AdamW { betas: Some([0.8, 0.9]), epsilon: None }.momentum(), Some(0.8));
        assert_eq!(Sgd::default().momentum(), None);
    }
}
