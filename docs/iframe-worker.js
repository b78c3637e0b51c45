/* Search runs in a worker, and browsers start none for pages opened from the file system. There a hidden frame takes
   its place: the same script, messages handed over as events. Served pages keep the browser's own workers. */
if (location.protocol === "file:") {
  window.Worker = class extends EventTarget {
    constructor(address) {
      super();
      const frame = document.createElement("iframe");
      frame.hidden = true;
      document.body.append(frame);
      this.inside = frame.contentWindow;
      this.inside.postMessage = (data) => this.dispatchEvent(new MessageEvent("message", { data }));
      const script = frame.contentDocument.createElement("script");
      script.src = new URL(address, location.href);
      this.ready = new Promise((resolve) => script.addEventListener("load", resolve));
      frame.contentDocument.body.append(script);
    }

    postMessage(data) {
      this.ready.then(() => this.inside.dispatchEvent(new MessageEvent("message", { data })));
    }

    terminate() {
      this.inside.frameElement.remove();
    }
  };
}
