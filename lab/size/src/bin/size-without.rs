//! A program without the engine: what the others are compared with.
#![forbid(unsafe_code)]

fn main() {
    println!("{}", std::env::args().count());
}
