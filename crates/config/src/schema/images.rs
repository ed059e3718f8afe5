//! The container runtime, and the images that it pulls.

use super::Kind::*;
use super::*;

pub const GROUP: Group = Group { title: "Container runtime and images", settings: SETTINGS };

const SETTINGS: &[Setting] = &[
    field("containerRuntimeEndpoint", Text("SOCKET"))
        .zero(Zero::Shown)
        .flag("container-runtime-endpoint")
        .default("unix:///run/containerd/containerd.sock")
        .acts()
        .doc("The socket on which the container runtime speaks CRI v1."),
    field("imageServiceEndpoint", Text("SOCKET"))
        .flag("image-service-endpoint")
        .doc("The socket of the image service, where it is not the runtime's."),
    field("runtimeRequestTimeout", Duration)
        .flag("runtime-request-timeout")
        .default("2m0s")
        .acts()
        .doc("How long the runtime may take to answer, image pulls apart."),
    field("serializeImagePulls", Bool)
        .pointer()
        .flag("serialize-image-pulls")
        .live()
        .doc("Pull one image at a time. When neither this nor maxParallelImagePulls is said, up to 5 images are pulled at once, so that one stuck registry does not hold the others up; upstream would pull one at a time. False alone means no limit."),
    field("maxParallelImagePulls", Int32)
        .pointer()
        .live()
        .doc("How many images are pulled at once."),
    field("registryPullQPS", Int32)
        .pointer()
        .flag("registry-qps")
        .default("5")
        .live()
        .doc("How many image pulls may begin per second. 0 means no limit."),
    field("registryBurst", Int32)
        .flag("registry-burst")
        .default("10")
        .live()
        .doc("How many image pulls may begin at once before --registry-qps holds them back."),
    field("imagePullCredentialsVerificationPolicy", Text("POLICY"))
        .acts()
        .doc("Whether a pod needs its own credentials for images that are already here: NeverVerify, NeverVerifyPreloadedImages (the default), NeverVerifyAllowlistedImages or AlwaysVerify."),
    field("preloadedImagesVerificationAllowlist", TextList("IMAGE"))
        .acts()
        .doc("Images that need no credentials, with NeverVerifyAllowlistedImages. A name may end in `/*`."),
    flag("image-credential-provider-config", Path)
        .acts()
        .doc("The configuration of the programs that know credentials for registries: a file, or a folder of them."),
    flag("image-credential-provider-bin-dir", Path)
        .acts()
        .doc("The folder of the programs that know credentials for registries."),
    field("imageMinimumGCAge", Duration)
        .flag("minimum-image-ttl-duration")
        .default("2m0s")
        .doc("How long an unused image stays at least."),
    field("imageMaximumGCAge", Duration)
        .default("0s")
        .doc("How long an unused image stays at most. 0s means for ever."),
    field("imageGCHighThresholdPercent", Int32)
        .pointer()
        .flag("image-gc-high-threshold")
        .default("85")
        .doc("Images are removed when the disk is fuller than this. 100 means never."),
    field("imageGCLowThresholdPercent", Int32)
        .pointer()
        .flag("image-gc-low-threshold")
        .default("80")
        .doc("Images are removed until the disk is no fuller than this."),
];
