//! Conversions between Burn's tensors and element types, and those of checkpoints.

use burn::tensor::{BoolStore, DType as BurnDType, TensorData};
use tenterhook::tensors::{Bytes, TensorBytes};
use tenterhook::{BoxError, DType};

macro_rules! dtypes {
    ($($name:ident)*) => {
        /// Tenterhook's element type, if checkpoints support it.
        pub(crate) fn from_burn(dtype: BurnDType) -> Option<DType> {
            match dtype {
                $(BurnDType::$name => Some(DType::$name),)*
                BurnDType::Bool(BoolStore::Native) => Some(DType::Bool),
                _ => None,
            }
        }

        /// Burn's element type, if Burn supports it.
        pub(crate) fn to_burn(dtype: DType) -> Option<BurnDType> {
            match dtype {
                $(DType::$name => Some(BurnDType::$name),)*
                DType::Bool => Some(BurnDType::Bool(BoolStore::Native)),
                _ => None,
            }
        }
    };
}

dtypes! { F64 F32 F16 BF16 I64 I32 I16 I8 U64 U32 U16 U8 }

/// The element type that hooks see.
pub(crate) fn shown_dtype(dtype: BurnDType) -> DType {
    from_burn(dtype).unwrap_or(DType::F32)
}

pub(crate) fn saved_dtype(dtype: BurnDType) -> Result<DType, BoxError> {
    from_burn(dtype).ok_or_else(|| format!("tensors of type {dtype:?} cannot be saved").into())
}

pub(crate) fn loaded_dtype(dtype: DType) -> Result<BurnDType, BoxError> {
    to_burn(dtype).ok_or_else(|| format!("tensors of type {dtype:?} cannot be loaded").into())
}

/// The tensor in the format of checkpoints, without a copy.
pub(crate) fn bytes(data: TensorData) -> Result<TensorBytes, BoxError> {
    let dtype = saved_dtype(data.dtype())?;
    let (bytes, shape, _) = data.into_parts();
    Ok(TensorBytes { dtype, shape: shape.iter().copied().collect(), bytes: Bytes::owned_by(bytes) })
}

/// A copy of the tensor in Burn's format.
pub(crate) fn data(tensor: &TensorBytes) -> Result<TensorData, BoxError> {
    let bytes = burn::tensor::Bytes::from_bytes_vec(tensor.bytes.to_vec());
    Ok(TensorData::from_bytes(bytes, tensor.shape.clone(), loaded_dtype(tensor.dtype)?))
}
