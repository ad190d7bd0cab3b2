//! Devices by name.

use burn::tensor::Device;

/// A device that cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum DeviceError {
    /// The name is unknown.
    #[error(
        "there is no device `{0}`; there are: cpu, wgpu, vulkan, metal, cuda, rocm, those with a number as in `cuda:1`"
    )]
    Unknown(String),
    /// Support for it is not compiled in.
    #[error(
        "this program was built without the device `{0}`; build it with `--features {0}`, or use `device = \"cpu\"`"
    )]
    NotBuilt(String),
}

/// The device of this name: `cpu`, or if compiled in `wgpu`, `vulkan`, `metal`, `cuda:1`, …
pub fn device(name: &str) -> Result<Device, DeviceError> {
    let (kind, number) = match name.split_once(':') {
        None => (name, None),
        Some((kind, number)) => {
            (kind, Some(number.parse::<usize>().map_err(|_| DeviceError::Unknown(name.to_owned()))?))
        }
    };
    match kind {
        "cpu" if number.is_none() => Ok(Device::flex()),
        #[cfg(feature = "wgpu")]
        "wgpu" => Ok(Device::wgpu(gpu(number))),
        #[cfg(feature = "vulkan")]
        "vulkan" => Ok(Device::vulkan(gpu(number))),
        #[cfg(feature = "metal")]
        "metal" => Ok(Device::metal(gpu(number))),
        #[cfg(feature = "cuda")]
        "cuda" => Ok(Device::cuda(number.unwrap_or(0))),
        #[cfg(feature = "rocm")]
        "rocm" => Ok(Device::rocm(number.unwrap_or(0))),
        "wgpu" | "vulkan" | "metal" | "cuda" | "rocm" => Err(DeviceError::NotBuilt(kind.to_owned())),
        _ => Err(DeviceError::Unknown(name.to_owned())),
    }
}

#[cfg(any(feature = "wgpu", feature = "vulkan", feature = "metal"))]
fn gpu(number: Option<usize>) -> burn::tensor::DeviceKind {
    use burn::tensor::DeviceKind;
    number.map_or(DeviceKind::DefaultDevice, DeviceKind::DiscreteGpu)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unavailable_device_is_an_error_that_says_what_to_do() {
        assert!(device("cpu").is_ok());
        for (name, hint) in [("gpu", "there are: cpu"), ("cpu:1", "there are"), ("cuda:x", "there are")] {
            let error = device(name).map(|_| ()).expect_err(name).to_string();
            assert!(error.contains(hint), "{error}");
        }
        #[cfg(not(feature = "cuda"))]
        assert!(device("cuda:0").map(|_| ()).expect_err("not built").to_string().contains("--features cuda"));
    }
}
