"""Log-mel features and MFCCs of audio, as Kaldi makes them, of any range of frames."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
from pydantic import Field, field_validator, model_validator

from seqprep import config
from seqprep.errors import ConfigError, DependencyError
from seqprep.types import FrameRange, Int64

Float32 = npt.NDArray[np.float32]


_DEFAULT_BINS = {"log_mel": 40, "mfcc": 23}


class FeatureOptions(config.Options):
    """Features; the defaults are Kaldi's, but for 40 bins of log-mel features and no dither."""

    type: Literal["log_mel", "mfcc"] = "log_mel"
    """Energies of mel bins, or their cepstra."""
    bins: int | None = Field(default=None, ge=3)
    """Mel bins: 40, and 23 for MFCCs, unless told. Log-mel features have as many values per frame."""
    coefficients: int = Field(default=13, ge=1)
    """Values per frame of MFCCs, the first included; only with `type: mfcc`."""
    cepstral_lifter: float = Field(default=22, ge=0, allow_inf_nan=False)
    """Scales the higher coefficients up; 0 leaves them as they are. Only with `type: mfcc`."""
    frame_length_ms: float = Field(default=25, gt=0, allow_inf_nan=False)
    """Of the audio that a frame is made of."""
    frame_shift_ms: float = Field(default=10, gt=0, allow_inf_nan=False)
    """From one frame to the next."""
    low_hz: float = Field(default=20, ge=0, allow_inf_nan=False)
    """Lower edge of the lowest bin."""
    high_hz: float = Field(default=0, allow_inf_nan=False)
    """Upper edge of the highest bin; 0 or less counts from half of the sample rate."""
    dither: float = 0
    """Random noise on the samples; only 0, so that features are the same in every run."""
    preemphasis: float = Field(default=0.97, ge=0, le=1)
    """How much of the sample before is taken off each; 0 for none."""
    remove_dc_offset: bool = True
    """Subtracts each frame's mean first."""
    window: Literal["povey", "hamming", "hanning", "blackman", "sine", "rectangular"] = "povey"
    """What each frame's samples are weighted by."""
    snip_edges: bool = True
    """True: only frames that lie wholly inside the file. False: one frame per shift, the file mirrored at its ends."""
    energy: bool | None = None
    """The frame's log energy: before the bins (bins + 1 values per frame; false unless told), of MFCCs in place of the
    first coefficient (true unless told)."""
    energy_floor: float = Field(default=0, ge=0, allow_inf_nan=False)
    """Least energy before its logarithm; only with `energy`."""
    raw_energy: bool = True
    """Energy before pre-emphasis and window; only with `energy`."""
    use_power: bool = True
    """Bins of the power spectrum, not of its square root; only with `type: log_mel`."""
    scale: float = Field(default=32768, gt=0, allow_inf_nan=False)
    """What samples in [−1, 1) are multiplied by first; Kaldi takes them in the range of 16-bit integers."""

    @field_validator("dither")
    @classmethod
    def _no_dither(cls, value: float) -> float:
        if value != 0:
            raise ValueError(f"source.features.dither is {value}: dither is random, so only 0 is offered; leave it out")
        return value

    @model_validator(mode="after")
    def _belong_together(self) -> FeatureOptions:
        given = self.model_fields_set
        others = {"log_mel": ("coefficients", "cepstral_lifter"), "mfcc": ("use_power",)}[self.type]
        without_energy = () if self.with_energy else ("energy_floor", "raw_energy")
        for name in given.intersection(others):
            raise ValueError(f"source.features.{name} is set, which features of type {self.type} have no use for")
        for name in given.intersection(without_energy):
            raise ValueError(
                f"source.features.{name} is {getattr(self, name)} but energy is false: set both or leave it out"
            )
        if self.type == "mfcc" and self.coefficients > self.mel_bins:
            raise ValueError(
                f"source.features.coefficients is {self.coefficients}, more than the {self.mel_bins} bins; raise bins"
            )
        return self

    @property
    def mel_bins(self) -> int:
        """Mel bins."""
        return _DEFAULT_BINS[self.type] if self.bins is None else self.bins

    @property
    def with_energy(self) -> bool:
        """Whether the energy is among the values."""
        return self.type == "mfcc" if self.energy is None else self.energy

    @property
    def size(self) -> int:
        """Values per frame."""
        return self.coefficients if self.type == "mfcc" else self.mel_bins + self.with_energy


class Features:
    """Makes features of files of one sample rate.

    Args:
        options: what to make.
        sample_rate: of the files, in Hz.

    Raises:
        ConfigError: the options are impossible at this sample rate.
        DependencyError: kaldi-native-fbank is missing.
    """

    def __init__(self, options: FeatureOptions, sample_rate: int) -> None:
        self._options = options
        self._rate = sample_rate
        # In single precision and cut off, as the library does: 24.99999 samples are 24.
        per_ms = np.float32(sample_rate) * np.float32(0.001)
        self._shift = int(per_ms * np.float32(options.frame_shift_ms))
        self._window = int(per_ms * np.float32(options.frame_length_ms))
        if self._shift < 1 or self._window < 2:
            raise ConfigError(
                f"source.features: a frame has {self._window} samples and a shift {self._shift} at {sample_rate} Hz; "
                "raise frame_length_ms or frame_shift_ms"
            )
        try:
            self._extractor()
        except ValueError as error:
            raise ConfigError(
                f"source.features can't be made at {sample_rate} Hz: {error}; "
                "change bins, low_hz, high_hz or frame_length_ms"
            ) from error

    @property
    def size(self) -> int:
        """Values per frame."""
        return self._options.size

    @property
    def frame_rate(self) -> Fraction:
        """Frames per second, exactly: a shift is a whole number of samples."""
        return Fraction(self._rate, self._shift)

    def count(self, samples: Int64) -> Int64:
        """Counts the frames of files, in closed form.

        Args:
            samples: [files], samples of each.

        Returns:
            [files], frames of each.
        """
        if self._options.snip_edges:
            return np.maximum((samples - self._window) // self._shift + 1, 0)
        return (samples + self._shift // 2) // self._shift

    def fill(self, out: Float32, first: int, samples: int, read: Callable[[FrameRange], Float32]) -> None:
        """Makes frames first, first + 1, … from those samples alone that they need.

        Args:
            out: [frames, size], C-contiguous; filled.
            first: the first frame.
            samples: samples of the whole file.
            read: gives a range of the file's samples, in [−1, 1).
        """
        if not len(out):
            return
        start = first * self._shift
        if not self._options.snip_edges:
            start += self._shift // 2 - self._window // 2  # frames are centred on their shift
        stop = start + (len(out) - 1) * self._shift + self._window
        extractor = self._extractor()
        scaled = _mirrored(start, stop, samples, read) * np.float32(self._options.scale)
        extractor.accept_waveform(self._rate, scaled.data)  # an array itself would take twice the time
        for place, row in enumerate(out):
            row[...] = extractor.get_frame(place)

    def _extractor(self) -> Any:
        """A fresh extractor; it always snips, for the samples beyond the file's ends are ours to add."""
        try:
            import kaldi_native_fbank
        except ImportError as error:
            raise DependencyError(
                f"source.features needs kaldi-native-fbank ({error}); pip install 'seqprep[audio]'"
            ) from error
        own, is_mfcc = self._options, self._options.type == "mfcc"
        options = kaldi_native_fbank.MfccOptions() if is_mfcc else kaldi_native_fbank.FbankOptions()
        options.frame_opts.samp_freq = self._rate
        options.frame_opts.frame_length_ms = own.frame_length_ms
        options.frame_opts.frame_shift_ms = own.frame_shift_ms
        options.frame_opts.dither = 0.0
        options.frame_opts.preemph_coeff = own.preemphasis
        options.frame_opts.remove_dc_offset = own.remove_dc_offset
        options.frame_opts.window_type = own.window
        options.frame_opts.snip_edges = True
        options.mel_opts.num_bins = own.mel_bins
        options.mel_opts.low_freq = own.low_hz
        options.mel_opts.high_freq = own.high_hz
        options.use_energy = own.with_energy
        options.energy_floor = own.energy_floor
        options.raw_energy = own.raw_energy
        if is_mfcc:
            options.num_ceps = own.coefficients
            options.cepstral_lifter = own.cepstral_lifter
            return kaldi_native_fbank.OnlineMfcc(options)
        options.use_power = own.use_power
        return kaldi_native_fbank.OnlineFbank(options)


def _mirrored(start: int, stop: int, samples: int, read: Callable[[FrameRange], Float32]) -> Float32:
    """Reads samples [start, stop) of a file, which goes on mirrored, edge sample included, before 0 and after its end."""
    # What mirrors into the file may lie a little beyond what is inside the range.
    inside = FrameRange(max(0, min(start, 2 * samples - stop)), min(samples, max(stop, -start)))
    whole = read(inside)
    before = _reflect(np.arange(min(start, 0), 0), samples) - inside.start
    after = _reflect(np.arange(samples, max(stop, samples)), samples) - inside.start
    if len(before) or len(after):
        whole = np.concatenate([whole[before], whole, whole[after]])
    skipped = start - (inside.start - len(before))
    return whole[skipped : skipped + stop - start]


def _reflect(places: Int64, samples: int) -> Int64:
    places = places % (2 * samples)
    return np.minimum(places, 2 * samples - 1 - places)
