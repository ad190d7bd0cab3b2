//! A float tensor whose rank is known only at run time.
//!
//! Burn's tensors have their rank in their type. Parameters and gradients of all ranks share one list here, so the rank is
//! a field, and [`with_rank`] makes it a constant again.

use std::ops::Range;

use burn::tensor::{DType as BurnDType, Device, Tensor, TensorData};
use burn_flex::{Flex, FlexTensor};
use tenterhook::tensor::{UpdateNorms, norm};
use tenterhook::tensors::{Buffers, TensorBytes};
use tenterhook::{BoxError, DType, TensorStats};

use crate::burn_tensor::MapGradient;
use crate::tensor_data::{bytes, saved_dtype, shown_dtype, to_burn};

/// Evaluates an expression with the rank as a constant.
macro_rules! with_rank {
    ($rank:expr, $D:ident => $body:expr) => {
        with_rank!($rank, $D => $body; 1 2 3 4 5 6 7)
    };
    ($rank:expr, $D:ident => $body:expr; $($number:literal)*) => {
        match $rank {
            $($number => {
                const $D: usize = $number;
                $body
            })*
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
pub struct DynTensor {
    rank: usize,
    /// The rank in this type is a placeholder, not the rank of the tensor.
    handle: Tensor<1>,
}

impl DynTensor {
    pub(crate) fn new<const D: usize>(tensor: Tensor<D>) -> DynTensor {
        DynTensor { rank: D, handle: Tensor::from_bridge(tensor.into_bridge()) }
    }

    /// The tensor with its rank `D`.
    pub(crate) fn into_tensor<const D: usize>(self) -> Tensor<D> {
        debug_assert_eq!(D, self.rank);
        Tensor::from_bridge(self.handle.into_bridge())
    }

    pub(crate) fn rank(&self) -> usize {
        self.rank
    }

    pub(crate) fn mapped(self, name: &str, map: &mut impl MapGradient) -> DynTensor {
        with_rank!(self.rank, D => DynTensor::new(map.map(name, self.into_tensor::<D>()).inner()))
    }

    pub(crate) fn shape(&self) -> Vec<usize> {
        with_rank!(self.rank, D => self.clone().into_tensor::<D>().dims().to_vec())
    }

    pub(crate) fn dtype(&self) -> DType {
        shown_dtype(self.handle.dtype())
    }

    pub(crate) fn add(self, other: DynTensor) -> DynTensor {
        with_rank!(self.rank, D => DynTensor::new(self.into_tensor::<D>() + other.into_tensor::<D>()))
    }

    /// The sum of the squares, on the device.
    pub(crate) fn square_sum(&self) -> Tensor<1> {
        with_rank!(self.rank, D => {
            let tensor = self.clone().into_tensor::<D>();
            (tensor.clone() * tensor).sum()
        })
    }

    /// Multiplies by a factor that is on the device.
    pub(crate) fn scale_by(self, factor: Tensor<1>) -> DynTensor {
        with_rank!(self.rank, D => DynTensor::new(self.into_tensor::<D>() * factor.reshape([1; D])))
    }

    pub(crate) fn scale(self, factor: f32) -> DynTensor {
        with_rank!(self.rank, D => DynTensor::new(self.into_tensor::<D>() * factor))
    }

    pub(crate) fn clamp(self, limit: f64) -> DynTensor {
        with_rank!(self.rank, D => DynTensor::new(self.into_tensor::<D>().clamp(-limit, limit)))
    }

    pub(crate) fn into_data(self) -> TensorData {
        with_rank!(self.rank, D => self.into_tensor::<D>().into_data())
    }

    /// A tensor of this data, with its element type.
    pub(crate) fn from_data(data: TensorData, device: &Device) -> DynTensor {
        let dtype = data.dtype();
        with_rank!(data.shape().num_dims(), D => DynTensor::new(Tensor::<D>::from_data(data, (device, dtype))))
    }

    /// A tensor of these values, this shape and this element type.
    pub(crate) fn from_values(values: &[f32], shape: &[usize], dtype: DType, device: &Device) -> DynTensor {
        let data = TensorData::new(values.to_vec(), shape.to_vec());
        let dtype = to_burn(dtype).unwrap_or(BurnDType::F32);
        with_rank!(shape.len(), D => DynTensor::new(Tensor::<D>::from_data(data, (device, dtype))))
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

    pub(crate) fn change_since(&self, before: &DynTensor) -> UpdateNorms {
        before.with_values(|before| self.with_values(|after| UpdateNorms::between(before, after)))
    }

    /// Calls `read` with the values: in place if they are contiguous in this process's memory, otherwise a
    /// copy. Burn's own method copies shared tensors, which nearly all are.
    fn with_values<T>(&self, read: impl FnOnce(&[f32]) -> T) -> T {
        if let Some(tensor) = self.contiguous().filter(|tensor| tensor.dtype() == BurnDType::F32) {
            return read(&tensor.storage::<f32>()[..tensor.layout().num_elements()]);
        }
        let copied =
            with_rank!(self.rank, D => self.clone().into_tensor::<D>().into_data_dtype(BurnDType::F32));
        read(copied.as_slice().unwrap_or_default())
    }

    /// The memory of the tensor, if it belongs to this process and is contiguous.
    fn contiguous(&self) -> Option<FlexTensor> {
        let in_memory = self.handle.clone().try_into_primitive::<Flex>().ok();
        in_memory.filter(|tensor| tensor.is_contiguous() && tensor.layout().start_offset() == 0)
    }

    /// The tensor in the format of checkpoints. Memory of this process is copied into a buffer.
    pub(crate) fn save(self, buffers: &Buffers) -> Result<TensorBytes, BoxError> {
        let Some(tensor) = self.contiguous() else { return bytes(self.into_data()) };
        let dtype = saved_dtype(tensor.dtype())?;
        let length = tensor.layout().num_elements() * dtype.size();
        let copy = buffers.copy_of(&tensor.bytes()[..length]);
        Ok(TensorBytes { dtype, shape: self.shape(), bytes: copy })
    }

    /// A part of the values, sliced on the device.
    pub(crate) fn slice(&self, ranges: &[Range<usize>]) -> Vec<f32> {
        with_rank!(self.rank, D => {
            let Ok(ranges) = <[Range<usize>; D]>::try_from(ranges.to_vec()) else { return Vec::new() };
            DynTensor::new(self.clone().into_tensor::<D>().slice(ranges)).to_vec()
        })
    }

    /// Changes the values as 32-bit floats: in place if they are contiguous and not shared, otherwise in one
    /// copy. During an update hook they are shared with the saved gradient, which undoes a failed hook.
    pub(crate) fn edit(self, change: &mut dyn FnMut(&mut [f32])) -> DynTensor {
        with_rank!(self.rank, D => {
            let tensor = self.into_tensor::<D>();
            let (device, dtype) = (tensor.device(), tensor.dtype());
            let mut data = tensor.into_data_dtype(BurnDType::F32);
            if let Ok(values) = data.as_mut_slice::<f32>() {
                change(values);
            }
            DynTensor::new(Tensor::<D>::from_data(data, (&device, dtype)))
        })
    }
}
