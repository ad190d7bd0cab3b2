//! Devices by name.

use tenterhook_burn::{DeviceError, device};

fn refused(name: &str) -> DeviceError {
    device(name).map(|_| ()).unwrap_err()
}

#[test]
fn the_cpu_is_always_available_and_without_autodiff() {
    assert!(!device("cpu").unwrap().is_autodiff());
}

#[test]
fn an_unknown_device_is_an_error_that_lists_the_known_ones() {
    for name in ["tpu", "", "CPU", "cpu:0", "cuda:", "cuda:one", "cuda:-1", "cuda:1:2"] {
        let error = refused(name);
        assert_eq!(error, DeviceError::Unknown(name.into()));
        let text = error.to_string();
        assert!(text.contains(&format!("`{name}`")) && text.contains("cpu, wgpu, vulkan"), "{text}");
    }
}

#[test]
#[cfg(not(feature = "rocm"))]
fn a_device_that_was_not_built_in_says_how_to_build_it_in() {
    for name in ["rocm", "rocm:1"] {
        let error = refused(name);
        assert_eq!(error, DeviceError::NotBuilt("rocm".into()));
        assert!(error.to_string().contains("--features rocm"), "{error}");
    }
}
