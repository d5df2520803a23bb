//! Replays the corpus of the fuzz target `diagnostics_codec`, and a mutation of each entry at each byte.

#[path = "common/property.rs"]
mod property;

#[test]
fn every_entry_and_its_mutations() {
    let folder = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../../fuzz/corpus/diagnostics_codec"
    );
    let mut entries = 0;
    for file in std::fs::read_dir(folder).expect("the corpus is part of the repository") {
        let data = std::fs::read(file.unwrap().path()).unwrap();
        property::holds(&data);
        for at in 0..data.len() {
            for byte in [0, 1, 0x7F, 0xFF, data[at].wrapping_add(1)] {
                let mut data = data.clone();
                data[at] = byte;
                property::holds(&data);
            }
            property::holds(&data[..at]);
        }
        entries += 1;
    }
    assert!(entries >= 20, "{entries} entries");
}
