mod copying;
mod hook;
mod options;
mod store;

use std::fs;
use std::path::Path;

/// Writes a checkpoint with these files, like the trainer.
fn write(directory: &Path, files: &[(&str, &[u8])]) {
    fs::create_dir_all(directory).expect("it can be made");
    let mut sums = serde_json::Map::new();
    for (name, bytes) in files {
        fs::write(directory.join(name), bytes).expect("it can be written");
        let sum = serde_json::json!({"bytes": bytes.len(), "blake3": blake3::hash(bytes).to_hex().as_str()});
        sums.insert((*name).to_owned(), sum);
    }
    let manifest = serde_json::json!({"format": 2, "files": sums, "blake3": "0"}).to_string();
    fs::write(directory.join("manifest.json"), manifest).expect("it can be written");
}
