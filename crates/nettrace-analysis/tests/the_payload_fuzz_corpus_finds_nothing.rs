//! Replays the corpus of the fuzz target `payload`, cut and changed at each byte.

#[path = "common/payload_property.rs"]
mod payload_property;

#[test]
fn every_entry_and_its_mutations() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../fuzz/corpus/payload");
    let mut entries = 0;
    for file in std::fs::read_dir(folder).expect("the corpus is part of the repository") {
        let data = std::fs::read(file.unwrap().path()).unwrap();
        payload_property::holds(&data);
        for at in 0..data.len() {
            payload_property::holds(&data[..at]);
            for byte in [0, 1, 0x7F, 0xFF] {
                let mut data = data.clone();
                data[at] = byte;
                payload_property::holds(&data);
            }
        }
        entries += 1;
    }
    assert!(entries >= 60, "{entries} entries");
}
