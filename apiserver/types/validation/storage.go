package validation

import (
	storagev1 "k8s.io/api/storage/v1"
	metavalidation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/kubernetes/pkg/apis/storage"
	v1 "k8s.io/kubernetes/pkg/apis/storage/v1"
	"k8s.io/kubernetes/pkg/apis/storage/validation"
)

var storageKinds = map[string]Kind{
	"csidrivers.storage.k8s.io": rules[storagev1.CSIDriver, storage.CSIDriver]{
		convert: v1.Convert_v1_CSIDriver_To_storage_CSIDriver,
		create:  validation.ValidateCSIDriver,
		update:  validation.ValidateCSIDriverUpdate,
		warn:    driverWarnings,
	},
	"csinodes.storage.k8s.io": rules[storagev1.CSINode, storage.CSINode]{
		convert: v1.Convert_v1_CSINode_To_storage_CSINode,
		create:  validation.ValidateCSINode,
		update:  validation.ValidateCSINodeUpdate,
	},
	"csistoragecapacities.storage.k8s.io": rules[storagev1.CSIStorageCapacity, storage.CSIStorageCapacity]{
		convert: v1.Convert_v1_CSIStorageCapacity_To_storage_CSIStorageCapacity,
		warn:    storageCapacityWarnings,
		create: func(c *storage.CSIStorageCapacity) field.ErrorList {
			return validation.ValidateCSIStorageCapacity(c, validation.CSIStorageCapacityValidateOptions{})
		},
		update: func(c, old *storage.CSIStorageCapacity) field.ErrorList {
			opts := validation.CSIStorageCapacityValidateOptions{
				AllowInvalidLabelValueInSelector: metavalidation.LabelSelectorHasInvalidLabelValue(old.NodeTopology),
			}
			return append(validation.ValidateCSIStorageCapacity(c, opts), validation.ValidateCSIStorageCapacityUpdate(c, old)...)
		},
	},
	"storageclasses.storage.k8s.io": rules[storagev1.StorageClass, storage.StorageClass]{
		convert: v1.Convert_v1_StorageClass_To_storage_StorageClass,
		warn:    storageClassWarnings,
		create:  validation.ValidateStorageClass,
		update: func(c, old *storage.StorageClass) field.ErrorList {
			return append(validation.ValidateStorageClass(c), validation.ValidateStorageClassUpdate(c, old)...)
		},
	},
	"volumeattachments.storage.k8s.io": rules[storagev1.VolumeAttachment, storage.VolumeAttachment]{
		convert: v1.Convert_v1_VolumeAttachment_To_storage_VolumeAttachment,
		create:  validation.ValidateVolumeAttachment,
		update:  validation.ValidateVolumeAttachmentUpdate,
	},
	"volumeattributesclasses.storage.k8s.io": rules[storagev1.VolumeAttributesClass, storage.VolumeAttributesClass]{
		convert: v1.Convert_v1_VolumeAttributesClass_To_storage_VolumeAttributesClass,
		create:  validation.ValidateVolumeAttributesClass,
		update:  validation.ValidateVolumeAttributesClassUpdate,
	},
}
