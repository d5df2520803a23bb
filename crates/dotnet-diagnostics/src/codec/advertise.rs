use super::guid::Guid;
use super::wire::{Bytes, DecodeError};

const MAGIC: [u8; 8] = *b"ADVR_V1\0";

/// The packet with which a process introduces itself on a connection that it opened (ipc.md 4.3). One-way, no answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Advertise {
    /// Stable over the life of the process, and the same as in its [`ProcessInfo`](super::ProcessInfo).
    pub runtime_cookie: Guid,
    /// As the process sees itself, inside its pid namespace.
    pub process_id: u64,
}

impl Advertise {
    /// Bytes of the packet.
    pub const SIZE: usize = 34;

    /// The packet.
    pub fn encode(&self) -> [u8; Advertise::SIZE] {
        let mut packet = [0; Advertise::SIZE];
        let fields = MAGIC
            .iter()
            .chain(&self.runtime_cookie.0)
            .copied()
            .chain(self.process_id.to_le_bytes());
        for (byte, value) in packet.iter_mut().zip(fields) {
            *byte = value;
        }
        packet
    }

    /// Takes the packet apart; the reserved word at its end is ignored.
    ///
    /// # Errors
    /// [`DecodeError::UnknownMagic`].
    pub fn decode(packet: &[u8; Advertise::SIZE]) -> Result<Advertise, DecodeError> {
        let mut bytes = Bytes::new(packet);
        if bytes.take(MAGIC.len())? != MAGIC {
            return Err(DecodeError::UnknownMagic);
        }
        Ok(Advertise {
            runtime_cookie: bytes.guid()?,
            process_id: bytes.u64()?,
        })
    }
}
