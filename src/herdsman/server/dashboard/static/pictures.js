// Files that a job made. They need the token, so each is fetched and shown from memory.

import { part, request } from "./api.js";
import { h } from "./dom.js";
import { button } from "./parts.js";

const SHOWN = /\.(png|jpe?g|gif|webp|avif|svg|bmp)$/i;
const MOST = 24;
const kept = new WeakMap();

export function pictures(jobId, files) {
  return h(
    "div",
    { class: "pictures", "data-test": "pictures" },
    files.slice(0, MOST).map((file) => picture(jobId, file)),
  );
}

function picture(jobId, file) {
  const path = `/jobs/${part(jobId)}/files/${part(file.name)}`;
  return h(
    "figure",
    { class: "picture", key: file.name },
    SHOWN.test(file.name) &&
      h("img", {
        alt: `Made by the job: ${file.name}`,
        loading: "lazy",
        hook: loader(path),
        "data-test": "picture",
      }),
    h("figcaption", {}, file.name),
    button("Save", () => void save(path, file.name), {
      kind: "small",
      label: `Save ${file.name}`,
      test: "save-file",
    }),
  );
}

function loader(path) {
  return {
    mount: async (image) => {
      const url = await address(path).catch(() => null);
      if (url === null) image.alt = `${image.alt} (it could not be fetched)`;
      else if (image.isConnected) {
        image.src = url;
        kept.set(image, url);
      } else URL.revokeObjectURL(url);
    },
    unmount: (image) => kept.has(image) && URL.revokeObjectURL(kept.get(image)),
  };
}

async function address(path) {
  const response = await request("GET", path);
  return URL.createObjectURL(await response.blob());
}

async function save(path, name) {
  const url = await address(path);
  const anchor = document.createElement("a");
  anchor.href = url;
  anchor.download = name;
  anchor.click();
  setTimeout(() => URL.revokeObjectURL(url), 60_000);
}
