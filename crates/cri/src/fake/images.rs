//! Images and the registry.

use std::time::Duration;

use crablet_model::runtime::{Image, ListedImage};

use super::behaviour::{FakeImage, Pull};
use super::state::{State, refused};
use super::trace::What;
use super::works::{Progress, WorkKind};
use crate::port::{CriError, ErrorKind, RegistryAuth, Result};

/// Longer than any run: a pull that hangs is never answered, and has no deadline.
const NEVER: Duration = Duration::from_secs(10 * 365 * 24 * 3600);

impl State {
    pub fn image(&self, reference: &str) -> Option<(&str, &FakeImage)> {
        let name = with_tag(reference);
        self.images
            .iter()
            .find(|(known, _)| **known == name || image_id(known) == reference)
            .map(|(name, image)| (name.as_str(), image))
    }

    pub fn image_status(&self, reference: &str) -> Option<Image> {
        let (name, image) = self.image(reference).filter(|(_, image)| image.present)?;
        Some(Image { id: image_id(name), size: image.size, uid: image.uid, username: image.username.clone() })
    }

    pub fn list_images(&self) -> Vec<ListedImage> {
        let present = self.images.iter().filter(|(_, image)| image.present);
        present
            .map(|(name, image)| ListedImage {
                id: image_id(name),
                tags: vec![name.clone()],
                digests: Vec::new(),
                size: image.size,
            })
            .collect()
    }

    pub fn begin_pull(&mut self, reference: &str, auth: Option<&RegistryAuth>) -> Result<Progress<String>> {
        let name = with_tag(reference);
        let needed = self.image(&name).and_then(|(_, image)| image.needs.as_ref());
        if needed.is_some_and(|needed| auth != Some(needed)) {
            return Err(refused(format!(
                "failed to pull and unpack image {name:?}: failed to resolve reference {name:?}: pull access denied"
            )));
        }
        let pull = self.image(&name).map(|(_, image)| image.pull.clone());
        let time = match pull {
            Some(Pull::Works { after }) => after,
            Some(Pull::Hangs) => NEVER,
            Some(Pull::Fails(message)) => return Err(refused(message)),
            None => {
                let message = format!(
                    "failed to pull and unpack image {name:?}: failed to resolve reference {name:?}: {name}: not found"
                );
                return Err(CriError::new(ErrorKind::NotFound, message));
            }
        };
        self.start_work(WorkKind::Pull { image: name }, time)
    }

    pub fn finish_pull(&mut self, name: &str) -> Result<String> {
        if let Some(image) = self.images.get_mut(name) {
            image.present = true;
        }
        self.record(What::ImagePulled { image: name.to_owned() });
        Ok(image_id(name))
    }
}

pub(super) fn with_tag(reference: &str) -> String {
    let last = reference.rsplit('/').next().unwrap_or(reference);
    if last.contains(':') || last.contains('@') {
        reference.to_owned()
    } else {
        format!("{reference}:latest")
    }
}

/// The image id: a digest that follows from the name.
pub(super) fn image_id(name: &str) -> String {
    let fnv = name.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    });
    format!("sha256:{fnv:064x}")
}
