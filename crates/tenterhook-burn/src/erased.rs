//! A float tensor whose rank is known at run time only.
//!
//! Burn's tensors carry their rank in their type. Parameters and gradients of all ranks stand in one
//! list here, so the rank is kept beside the tensor, and [`with_rank`] brings it back into the type.

use std::ops::Range;

use burn::tensor::{DType as BurnDType, Device, Tensor, TensorData};
use burn_flex::{Flex, FlexTensor};
use tenterhook::tensor::{UpdateNorms, norm};
use tenterhook::tensors::{Buffers, TensorBytes};
use tenterhook::{BoxError, DType, TensorStats};

use crate::native::MapGradient;
use crate::saved::{bytes, dtypes};

/// Runs a block with the rank as a constant.
macro_rules! with_rank {
    ($rank:expr, $D:ident => $body:expr) => {
        match $rank {
            1 => {
                const $D: usize = 1;
                $body
            }
            2 => {
                const $D: usize = 2;
                $body
            }
            3 => {
                const $D: usize = 3;
                $body
            }
            4 => {
                const $D: usize = 4;
                $body
            }
            5 => {
                const $D: usize = 5;
                $body
            }
            6 => {
                const $D: usize = 6;
                $body
            }
            7 => {
                const $D: usize = 7;
                $body
            }
            _ => {
                const $D: usize = 8;
                $body
            }
        }
    };
}
pub(crate) use with_rank;

/// A float tensor of any rank from 1 to 8.
#[derive(Clone, Debug)]
pub struct Erased {
    rank: usize,
    /// Only its handle: the rank in this type means nothing.
    handle: Tensor<1>,
}

impl Erased {
    pub(crate) fn new<const D: usize>(tensor: Tensor<D>) -> Erased {
        Erased { rank: D, handle: Tensor::from_bridge(tensor.into_bridge()) }
    }

    /// The tensor. `D` must be its rank, which is so wherever a parameter's own rank is used.
    pub(crate) fn into_tensor<const D: usize>(self) -> Tensor<D> {
        debug_assert_eq!(D, self.rank);
        Tensor::from_bridge(self.handle.into_bridge())
    }

    pub(crate) fn rank(&self) -> usize {
        self.rank
    }

    /// What this makes of it.
    pub(crate) fn mapped(self, name: &str, map: &mut impl MapGradient) -> Erased {
        with_rank!(self.rank, D => Erased::new(map.map(name, self.into_tensor::<D>()).inner()))
    }

    pub(crate) fn shape(&self) -> Vec<usize> {
        with_rank!(self.rank, D => self.clone().into_tensor::<D>().dims().to_vec())
    }

    pub(crate) fn dtype(&self) -> DType {
        dtype(self.handle.dtype())
    }

    pub(crate) fn plus(self, other: Erased) -> Erased {
        with_rank!(self.rank, D => Erased::new(self.into_tensor::<D>() + other.into_tensor::<D>()))
    }

    /// The sum of the squares, still on the device.
    pub(crate) fn square_sum(&self) -> Tensor<1> {
        with_rank!(self.rank, D => {
            let tensor = self.clone().into_tensor::<D>();
            (tensor.clone() * tensor).sum()
        })
    }

    /// All values times one that is still on the device.
    pub(crate) fn times(self, factor: Tensor<1>) -> Erased {
        with_rank!(self.rank, D => Erased::new(self.into_tensor::<D>() * factor.reshape([1; D])))
    }

    pub(crate) fn scale(self, factor: f32) -> Erased {
        with_rank!(self.rank, D => Erased::new(self.into_tensor::<D>() * factor))
    }

    pub(crate) fn clamp(self, limit: f64) -> Erased {
        with_rank!(self.rank, D => Erased::new(self.into_tensor::<D>().clamp(-limit, limit)))
    }

    pub(crate) fn into_data(self) -> TensorData {
        with_rank!(self.rank, D => self.into_tensor::<D>().into_data())
    }

    /// These numbers as a tensor, of the type they are of.
    pub(crate) fn from_data(data: TensorData, device: &Device) -> Erased {
        let kind = data.dtype();
        with_rank!(data.shape().num_dims(), D => Erased::new(Tensor::<D>::from_data(data, (device, kind))))
    }

    /// These values as a tensor of this shape and element type.
    pub(crate) fn from_values(values: &[f32], shape: &[usize], kind: DType, device: &Device) -> Erased {
        let data = TensorData::new(values.to_vec(), shape.to_vec());
        with_rank!(shape.len(), D => Erased::new(Tensor::<D>::from_data(data, (device, burn_dtype(kind)))))
    }

    pub(crate) fn to_vec(&self) -> Vec<f32> {
        self.with_values(<[f32]>::to_vec)
    }

    pub(crate) fn stats(&self) -> TensorStats {
        self.with_values(TensorStats::of)
    }

    pub(crate) fn norm(&self) -> f64 {
        self.with_values(norm)
    }

    /// How it has changed since it was this.
    pub(crate) fn change_since(&self, before: &Erased) -> UpdateNorms {
        before.with_values(|before| self.with_values(|after| UpdateNorms::between(before, after)))
    }

    /// Looks at the values where they lie, if that is in this process's memory and in order; else in a copy. A tensor is
    /// shared nearly always, and Burn itself copies what is shared.
    fn with_values<T>(&self, look: impl FnOnce(&[f32]) -> T) -> T {
        if let Some(tensor) = self.in_order().filter(|tensor| tensor.dtype() == BurnDType::F32) {
            return look(&tensor.storage::<f32>()[..tensor.layout().num_elements()]);
        }
        let copied = self.floats();
        look(copied.as_slice().unwrap_or_default())
    }

    /// Its memory, if that is this process's and its numbers lie there one after the other.
    fn in_order(&self) -> Option<FlexTensor> {
        let in_memory = self.handle.clone().try_into_primitive::<Flex>().ok();
        in_memory.filter(|tensor| tensor.is_contiguous() && tensor.layout().start_offset() == 0)
    }

    /// Its numbers as a checkpoint holds them: copied into a buffer from this process's memory, and from elsewhere as they
    /// are handed over.
    pub(crate) fn save(self, buffers: &Buffers) -> Result<TensorBytes, BoxError> {
        let Some(tensor) = self.in_order() else { return bytes(self.into_data()) };
        let dtype = dtypes::ours(tensor.dtype())?;
        let length = tensor.layout().num_elements() * dtype.size();
        let copy = buffers.copy_of(&tensor.bytes()[..length]);
        Ok(TensorBytes { dtype, shape: self.shape(), bytes: copy })
    }

    fn floats(&self) -> TensorData {
        with_rank!(self.rank, D => self.clone().into_tensor::<D>().into_data_dtype(BurnDType::F32))
    }

    /// A part of the values, cut out where the tensor lives.
    pub(crate) fn slice(&self, ranges: &[Range<usize>]) -> Vec<f32> {
        with_rank!(self.rank, D => {
            let Ok(ranges) = <[Range<usize>; D]>::try_from(ranges.to_vec()) else { return Vec::new() };
            Erased::new(self.clone().into_tensor::<D>().slice(ranges)).to_vec()
        })
    }

    /// Lets the values be changed as 32-bit floats: in place where this is their only owner and they lie in order,
    /// else in one copy. While a hook runs its gradients are kept, so there it is one copy.
    pub(crate) fn edit(self, change: &mut dyn FnMut(&mut [f32])) -> Erased {
        with_rank!(self.rank, D => {
            let tensor = self.into_tensor::<D>();
            let (device, kind) = (tensor.device(), tensor.dtype());
            let mut data = tensor.into_data_dtype(BurnDType::F32);
            if let Ok(values) = data.as_mut_slice::<f32>() {
                change(values);
            }
            Erased::new(Tensor::<D>::from_data(data, (&device, kind)))
        })
    }
}

/// The element type of a float tensor, as Burn calls it.
fn burn_dtype(dtype: DType) -> BurnDType {
    match dtype {
        DType::F64 => BurnDType::F64,
        DType::F16 => BurnDType::F16,
        DType::BF16 => BurnDType::BF16,
        _ => BurnDType::F32,
    }
}

pub(crate) fn dtype(dtype: BurnDType) -> DType {
    use BurnDType as Burn;
    match dtype {
        Burn::F64 => DType::F64,
        Burn::F16 => DType::F16,
        Burn::BF16 => DType::BF16,
        Burn::I64 => DType::I64,
        Burn::U8 => DType::U8,
        Burn::Bool(_) => DType::Bool,
        _ => DType::F32,
    }
}
