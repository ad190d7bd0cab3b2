//! Both preludes can be used in one file, and the buffers of a model are not parameters.

use burn::nn::{BatchNorm, BatchNormConfig, Linear, LinearConfig};
use burn::optim::SgdConfig;
use burn::prelude::*;
use tenterhook::hooks::{ModelSummary, ModelSummaryOptions};
use tenterhook::prelude::*;
use tenterhook_burn::{Burn, BurnCx, BurnModule, Optimizer, Step};

use crate::lab::{Numbers, to_train_on, trainer};

/// A model with buffers: the running statistics of its batch norm.
#[derive(Module, Debug)]
struct Normed {
    linear: Linear,
    norm: BatchNorm,
}

/// Every type name of Burn's prelude refers to Burn's type.
fn _types_of_burn(
    _: &Tensor<2>,
    _: &Tensor<1, Int>,
    _: &Tensor<1, Bool>,
    _: &Device,
    _: &Shape,
    _: &TensorData,
) {
}

impl BurnModule for Normed {
    type Batch = Numbers;
    type Prediction = ();

    fn training_step(&mut self, batch: &Numbers, _: &mut BurnCx<'_, Normed>) -> ModuleResult<Step> {
        let input = Tensor::<1>::from_data(batch.0, &self.linear.weight.device()).reshape([1, 2]);
        Ok(self.norm.forward(self.linear.forward(input).reshape([1, 3, 1])).sum().into())
    }
}

#[test]
fn running_statistics_are_not_counted_as_parameters() {
    let device = Device::default();
    let model =
        Normed { linear: LinearConfig::new(2, 3).init(&device), norm: BatchNormConfig::new(3).init(&device) };
    let told = std::sync::Arc::new(std::sync::Mutex::new(Vec::new()));
    let lines = told.clone();
    let settings = Settings { max_epochs: Some(1), ..Settings::default() };
    let mut trainer = trainer(settings).with_notices(move |notice| {
        if let RunNotice::Printed(line) = notice {
            lines.lock().unwrap().push(line.clone());
        }
    });
    trainer.add_hook_type::<ModelSummary>(ModelSummaryOptions::default()).unwrap();
    let mut module = Burn::new(model, &device)
        .with_optimizers(|_| Ok(Optimizer::new("sgd", SgdConfig::new().build(), 0.1).into()));
    trainer.fit(&mut module, &mut to_train_on(&[Numbers([1.0, 2.0], [0.0])])).unwrap();
    // 2·3 weights, 3 biases, and the batch norm's 3 factors and 3 offsets; its 3 means and 3 variances do not
    // count.
    assert_eq!(trainer.run_info().parameters, 15);
    let summary = told.lock().unwrap().join("\n");
    assert!(summary.contains("model: 15 parameters in 4 tensors"), "{summary}");
    assert!(summary.contains("; 6 non-trainable values"), "{summary}");
}
